//! The state machine of one log; synchronous; knows no ring, thread, clock or socket.
