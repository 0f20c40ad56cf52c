//! The open-agent command line
