//! Records as rows of MySQL.

use sqlx::mysql::MySqlRow;
use sqlx::{Error, Row};

use super::db::Query;
use crate::row::{Columns, Values};

impl Columns for MySqlRow {
    fn integer(&self, name: &'static str) -> Result<Option<i64>, Error> {
        self.try_get(name)
    }

    /// The names of key classes are in columns of bytes, which have no collation and are no text to sqlx.
    fn text(&self, name: &'static str) -> Result<Option<&str>, Error> {
        let bytes: Option<&[u8]> = self.try_get(name)?;
        bytes.map(std::str::from_utf8).transpose().map_err(|error| Error::Decode(error.into()))
    }

    fn blob(&self, name: &'static str) -> Result<Option<&[u8]>, Error> {
        self.try_get(name)
    }
}

impl Values for Query {
    fn integer(self, value: Option<i64>) -> Self {
        self.bind(value)
    }

    // What is bound is copied at once.
    fn text(self, value: Option<&str>) -> Self {
        self.bind(value)
    }

    fn blob(self, value: Option<&[u8]>) -> Self {
        self.bind(value)
    }
}
