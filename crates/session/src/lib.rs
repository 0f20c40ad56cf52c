//! Session log: entries, transcript and stores
