//! A wall clock of its own for a server: Debian's libfaketime keeps Redis from starting.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::servers::keeper::succeed;

/// A library that is preloaded into the server, and the file that both it and we have open.
#[derive(Debug)]
pub(super) struct Clock {
    library: PathBuf,
    path: PathBuf,
    ahead: File,
}

impl Clock {
    pub(super) fn new(folder: &Path) -> Self {
        let (source, library, path) = (folder.join("clock.c"), folder.join("clock.so"), folder.join("ahead"));
        std::fs::write(&source, include_str!("clock.c")).expect("a folder of ours");
        succeed(Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source));
        let mut options = OpenOptions::new();
        let ahead = options.create_new(true).write(true).open(&path).expect("a folder of ours");
        let clock = Self { library, path, ahead };
        clock.set(0);
        clock
    }

    /// Takes effect at once.
    pub(super) fn set(&self, ahead: i64) {
        self.ahead.write_all_at(&ahead.to_ne_bytes(), 0).expect("a file of ours");
    }

    pub(super) fn configure(&self, server: &mut Command) {
        server.env("LD_PRELOAD", &self.library).env("CLOCK_AHEAD", &self.path);
    }
}
