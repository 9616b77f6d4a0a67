//! Reading a table's shape from SQLite's pragmas.

use super::{
    link::{Answer, Ask, literal},
    table::{Column, Index, Kind, Part, Table},
};

/// What is known of a table; `None` where there is none.
pub(super) async fn read(link: &mut dyn Ask, table: &str) -> sqlx::Result<Option<Table>> {
    let name = literal(table, true);
    let master =
        format!("SELECT type, name FROM sqlite_schema WHERE type IN ('table', 'view') AND lower(name) = lower({name})");
    let Some(shown) = link.ask(&master).await?.into_iter().next() else { return Ok(None) };

    let sql = format!("SELECT name, type, \"notnull\", pk, hidden FROM pragma_table_xinfo({name}) ORDER BY cid");
    let answers = link.ask(&sql).await?;
    let keys = answers.iter().filter(|answer| text(answer, 3) != "0").count();
    let columns = answers.iter().map(column).collect();

    let mut indexes = Vec::new();
    // A lone integer primary key is the row's number: it has no index of its own, and ends every other one.
    if let Some(rowid) =
        answers.iter().find(|it| keys == 1 && text(it, 3) == "1" && text(it, 1).eq_ignore_ascii_case("integer"))
    {
        let part = Part { column: Some(text(rowid, 0).to_owned()), whole: true, descending: false };
        indexes.push(Index {
            name: "the primary key".to_owned(),
            unique: true,
            primary: true,
            usable: true,
            parts: vec![part],
        });
    }
    let sql = format!("SELECT name, \"unique\", partial, origin FROM pragma_index_list({name}) ORDER BY seq");
    for answer in link.ask(&sql).await? {
        let index = text(&answer, 0);
        let sql = format!(
            "SELECT name, \"desc\" FROM pragma_index_xinfo({}) WHERE key = 1 ORDER BY seqno",
            literal(index, true)
        );
        let part = |part: &Answer| Part {
            column: part.first().cloned().flatten(),
            whole: true,
            descending: text(part, 1) == "1",
        };
        let is_whole = text(&answer, 2) == "0";
        indexes.push(Index {
            name: index.to_owned(),
            unique: text(&answer, 1) == "1" && is_whole,
            primary: text(&answer, 3) == "pk",
            usable: is_whole,
            parts: link.ask(&sql).await?.iter().map(part).collect(),
        });
    }
    let sql = format!("SELECT name FROM sqlite_schema WHERE type = 'trigger' AND lower(tbl_name) = lower({name})");
    let triggers = link.ask(&sql).await?.iter().map(|answer| text(answer, 0).to_owned()).collect();
    Ok(Some(Table { columns, indexes, is_view: text(&shown, 0) == "view", triggers, ..Table::default() }))
}

pub(super) async fn table_names(link: &mut dyn Ask) -> sqlx::Result<Vec<String>> {
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' LIMIT 1000";
    Ok(link.ask(sql).await?.into_iter().filter_map(|answer| answer.into_iter().next().flatten()).collect())
}

fn text(answer: &Answer, index: usize) -> &str {
    answer.get(index).and_then(Option::as_deref).unwrap_or_default()
}

fn column(answer: &Answer) -> Column {
    let declared = text(answer, 1).to_owned();
    Column {
        name: text(answer, 0).to_owned(),
        kind: kind(&declared.to_lowercase()),
        // The column that is the row's number is never NULL, though it need not say so.
        nullable: text(answer, 2) == "0" && text(answer, 3) == "0",
        generated: matches!(text(answer, 4), "2" | "3"),
        touched_on_update: false,
        declared: if declared.is_empty() { "without a type".to_owned() } else { declared },
    }
}

/// By the words that SQLite's own rules of affinity look for, and those of dates.
fn kind(declared: &str) -> Kind {
    let any = |words: &[&str]| words.iter().any(|word| declared.contains(word));
    if any(&["int"]) {
        Kind::Integer { min: i64::MIN.into(), max: i64::MAX.into() }
    } else if any(&["char", "clob", "text"]) {
        Kind::Text { chars: None }
    } else if any(&["datetime", "timestamp"]) {
        Kind::Moment { decimals: 3, zoned: false }
    } else if any(&["json"]) {
        Kind::Json
    } else if any(&["blob"]) || declared.is_empty() {
        Kind::Bytes { bytes: None }
    } else {
        Kind::Other
    }
}
