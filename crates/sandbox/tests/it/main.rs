//! Files and processes as their callers see them.

#![cfg(test)]

mod files;
mod limits;
mod orphans;
mod runner;
