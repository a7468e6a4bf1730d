//! The agent as a host sees it, running as an ordinary process without walls.

mod host;

mod conversation;
mod files;
mod processes;
mod reconnect;
mod sandbox;
mod terminals;
mod trees;
mod walls;
