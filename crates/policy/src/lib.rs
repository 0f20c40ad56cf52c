//! Judges tool calls; starts nothing
