//! Private servers: started on a free port in a temporary folder, to be paused, killed and restarted by tests, and gone with
//! them. A program that is not installed is a panic that names its Debian package.

mod keeper;
mod pgbouncer;
mod postgres;

pub use pgbouncer::PgBouncer;
pub use postgres::Postgres;
