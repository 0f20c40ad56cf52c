//! Tools and the ports that they use
