//! Revisions and times as SQLite keeps them.

use rusqlite::{
    ToSql,
    types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, ValueRef},
};

/// A `u64` in a signed column. What is greater than the column can hold is kept as its greatest: a time that never
/// comes, a revision that no database reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number(pub(crate) u64);

impl ToSql for Number {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(i64::try_from(self.0).unwrap_or(i64::MAX).into())
    }
}

impl FromSql for Number {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let value = value.as_i64()?;
        u64::try_from(value).map(Self).map_err(|_| FromSqlError::OutOfRange(value))
    }
}
