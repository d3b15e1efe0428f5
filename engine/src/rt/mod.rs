//! The only system calls of the engine; knows no log and no record format.
