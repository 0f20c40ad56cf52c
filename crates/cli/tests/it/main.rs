//! The program itself, run as a user runs it.

#![cfg(test)]

mod demo;
