//! The testbed server and the tests that need it.
