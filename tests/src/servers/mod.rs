//! Private servers: started on a free port in a temporary folder, to be paused, killed and restarted by tests, and gone with
//! them. A program that is not installed is a panic that names its Debian package.

mod keeper;
mod mariadb;
mod pgbouncer;
mod postgres;
mod redis;

pub use mariadb::MariaDb;
pub use pgbouncer::PgBouncer;
pub use postgres::Postgres;
pub use redis::{Absence, Redis, RedisCluster, RedisSentinel, SlotMove};
