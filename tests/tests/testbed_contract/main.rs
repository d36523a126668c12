//! The testbed answers as its contract says: options, routes, switches, and its end.

mod end;
mod fenced;
mod options;
mod records;
mod routes;
mod settings;
mod switches;
