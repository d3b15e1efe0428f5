//! Power cuts under load: what was acknowledged by then must be there.
//!
//! In reading order: what the load says and what follows from it ([`note`], [`expected`]), the logs ([`owner`]), the load
//! ([`load`]), the look at what a cut has left ([`verify`]), all of it together ([`run`]). The load and each look
//! are processes of their own: this one serves the disk and must never wait for it.

pub mod expected;
pub mod load;
pub mod note;
pub mod owner;
pub mod run;
pub mod verify;
