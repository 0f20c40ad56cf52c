//! Test helpers: temporary workspaces and a scripted model server
