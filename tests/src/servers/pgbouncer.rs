//! A private PgBouncer.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Postgres;
use super::keeper::{self, Keeper, Unprivileged};
use crate::process::Process;

/// A proxy in front of a [`Postgres`] that pools transactions: each may be in another of few sessions. Stopped when it is
/// dropped, or else when the process ends.
#[derive(Debug)]
pub struct PgBouncer {
    port: u16,
    _server: Process,
    _keeper: Keeper,
}

impl PgBouncer {
    /// Starts it, and waits until it is ready.
    ///
    /// # Panics
    /// When it is not installed, or does not start.
    #[must_use]
    pub fn start(postgres: &Postgres) -> Self {
        let program = Path::new("/usr/sbin/pgbouncer");
        assert!(program.exists(), "PgBouncer is missing: install the Debian package `pgbouncer`");
        let user = Unprivileged::user("postgres");
        let folder = keeper::folder("pgbouncer-");
        let keeper = Keeper::new(&folder, &folder.join("pid"));
        let port = keeper::free_port();
        let configuration = configure(&folder, port, postgres.port());
        user.own(&folder).expect("a user `postgres`, as the Debian package `postgresql` makes it");
        let mut command = user.command(program);
        let mut server = Process::spawn(command.arg(configuration).current_dir(&folder));
        let give_up = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = server.try_wait().is_some();
            assert!(!ended && Instant::now() < give_up, "PgBouncer does not start; it wrote: {}", server.stderr());
            sleep(Duration::from_millis(20));
        }
        Self { port, _server: server, _keeper: keeper }
    }

    /// A URL for one of the server's databases, through the proxy.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }
}

fn configure(folder: &Path, port: u16, server_port: u16) -> PathBuf {
    let file = folder.join("pgbouncer.ini");
    let configuration = format!(
        "[databases]\n\
         * = host=127.0.0.1 port={server_port} user=postgres\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = any\n\
         pidfile = {}\n\
         pool_mode = transaction\n\
         default_pool_size = 4\n\
         ignore_startup_parameters = extra_float_digits,options\n",
        folder.join("pid").display()
    );
    std::fs::write(&file, configuration).expect("a folder of ours");
    file
}
