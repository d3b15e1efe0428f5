//! To come with the code it measures.
#![forbid(unsafe_code)]
