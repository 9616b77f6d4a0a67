//! The facts that the store's statements depend on, from the same look at the table that the inspection takes.

use super::{
    application_name,
    link::Ask,
    read_table,
    server::Server,
    shape::queue_columns,
    table::{Column, Kind},
};
use crate::store::{
    StoreError,
    facts::{self, Facts, IdKind},
    settings::Settings,
};

/// SQLite keeps times as text, which Outbill writes with milliseconds.
const SQLITE_DECIMALS: u8 = 3;

/// # Errors
/// The table or one of the columns cannot be seen; the inspection says more.
pub(in crate::store) async fn facts(link: &mut dyn Ask, is_sqlite: bool, settings: &Settings) -> anyhow::Result<Facts> {
    let name = application_name(settings).map_err(anyhow::Error::msg)?;
    let server = if is_sqlite { None } else { Some(Server::look(link).await?) };
    let table = read_table(link, server.as_ref(), &name).await?;
    let unseen =
        |what: String| StoreError::Invalid(format!("{what} not visible to this user; `outbill check` says more"));
    let table = table.ok_or_else(|| unseen(format!("the table {name} does not exist, or is")))?;
    let column = |wanted: &str| {
        let missing = || unseen(format!("the table {name} has no column {wanted}, or it is"));
        table.column(wanted).ok_or_else(missing)
    };
    let names = &settings.columns;
    let reason = names.reason.as_deref().map(column).transpose()?;
    Ok(Facts {
        server: match server {
            Some(server) => facts::Server { version: server.version, is_mariadb: server.is_mariadb },
            None => facts::Server {
                version: link.ask_one("SELECT sqlite_version()").await?.unwrap_or_default(),
                is_mariadb: false,
            },
        },
        id: id_kind(column(&names.id)?),
        retry_time_decimals: decimals(column(&names.next_retry_time)?, SQLITE_DECIMALS),
        finished_at_decimals: if is_sqlite { 0 } else { decimals(column(&names.finished_at)?, 0) },
        retry_count_max: integer_max(column(&names.retry_count)?),
        reason_chars_max: reason.and_then(|column| match column.kind {
            Kind::Text { chars } => chars,
            _ => None,
        }),
        reason_is_nullable: reason.is_none_or(|column| column.nullable),
        fetch_index: table.queue_index(queue_columns(settings)).map(|index| index.name.clone()),
    })
}

fn id_kind(column: &Column) -> IdKind {
    match column.kind {
        Kind::Integer { min: 0, .. } => IdKind::Unsigned,
        Kind::Integer { .. } => IdKind::Signed,
        Kind::Bytes { .. } => IdKind::Binary,
        _ => IdKind::Text,
    }
}

fn decimals(column: &Column, otherwise: u8) -> u8 {
    match column.kind {
        Kind::Moment { decimals, .. } => decimals,
        _ => otherwise,
    }
}

fn integer_max(column: &Column) -> i64 {
    match column.kind {
        Kind::Integer { max, .. } => i64::try_from(max).unwrap_or(i64::MAX),
        _ => i64::MAX,
    }
}
