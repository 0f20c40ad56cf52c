//! The library as a user sees it.

#![cfg(test)]

mod examples;
