//! What the providers make of the answers that servers really send: recordings, and bodies that were written by hand, sent
//! to the public provider by a server on loopback, chunk by chunk.

mod faults;
mod oddities;
mod replay;
mod sender;
mod tolerance;
