//! Reading a table's shape from MySQL's and MariaDB's `information_schema`.

use super::{
    link::{Answer, Ask, literal},
    server::Server,
    table::{Column, Index, Kind, Part, Table},
};

/// What the account can see of a table; `None` where it sees nothing, whether or not there is such a table.
pub(super) async fn read(
    link: &mut dyn Ask,
    server: &Server,
    schema: &str,
    table: &str,
) -> sqlx::Result<Option<Table>> {
    let of = |schema_column: &str, table_column: &str| {
        format!("{schema_column} = {} AND {table_column} = {}", literal(schema, false), literal(table, false))
    };
    let sql = format!(
        "/* outbill:inspect_table */ SELECT TABLE_NAME, ENGINE, TABLE_TYPE, CREATE_OPTIONS \
         FROM information_schema.TABLES WHERE {}",
        of("TABLE_SCHEMA", "TABLE_NAME")
    );
    // MariaDB compares these names without regard to case, even where two tables differ by nothing else.
    let named = |answer: &Answer| server.folds_table_names || text(answer, 0) == table;
    let Some(shown) = link.ask(&sql).await?.into_iter().find(named) else { return Ok(None) };

    let sql = format!(
        "/* outbill:inspect_columns */ SELECT TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, \
         CHARACTER_MAXIMUM_LENGTH, DATETIME_PRECISION, EXTRA FROM information_schema.COLUMNS WHERE {} \
         ORDER BY ORDINAL_POSITION",
        of("TABLE_SCHEMA", "TABLE_NAME")
    );
    let columns = link.ask(&sql).await?.iter().filter(|answer| named(answer)).map(column).collect();

    let sql = format!(
        "/* outbill:inspect_indexes */ SELECT TABLE_NAME, INDEX_NAME, NON_UNIQUE, SEQ_IN_INDEX, COLUMN_NAME, COLLATION, \
         SUB_PART, INDEX_TYPE, {} FROM information_schema.STATISTICS WHERE {} ORDER BY INDEX_NAME, SEQ_IN_INDEX",
        server.index_visibility(),
        of("TABLE_SCHEMA", "TABLE_NAME")
    );
    let indexes = indexes(link.ask(&sql).await?.iter().filter(|answer| named(answer)));

    let sql = format!(
        "/* outbill:inspect_triggers */ SELECT EVENT_OBJECT_TABLE, TRIGGER_NAME FROM information_schema.TRIGGERS WHERE {} \
         AND EVENT_MANIPULATION = 'UPDATE'",
        of("EVENT_OBJECT_SCHEMA", "EVENT_OBJECT_TABLE")
    );
    let triggers =
        link.ask(&sql).await?.iter().filter(|answer| named(answer)).map(|it| text(it, 1).to_owned()).collect();

    Ok(Some(Table {
        columns,
        indexes,
        engine: shown.get(1).cloned().flatten(),
        is_view: text(&shown, 2).contains("VIEW"),
        is_partitioned: text(&shown, 3).contains("partitioned"),
        triggers,
    }))
}

/// The names of the tables of a schema that the account can see, a thousand at most.
pub(super) async fn table_names(link: &mut dyn Ask, schema: &str) -> sqlx::Result<Vec<String>> {
    let sql = format!(
        "/* outbill:inspect_names */ SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = {} LIMIT 1000",
        literal(schema, false)
    );
    Ok(link.ask(&sql).await?.into_iter().filter_map(|answer| answer.into_iter().next().flatten()).collect())
}

fn text(answer: &Answer, index: usize) -> &str {
    answer.get(index).and_then(Option::as_deref).unwrap_or_default()
}

fn column(answer: &Answer) -> Column {
    let declared = text(answer, 3).to_owned();
    let extra = text(answer, 7).to_lowercase();
    Column {
        name: text(answer, 1).to_owned(),
        kind: kind(
            &text(answer, 2).to_lowercase(),
            &declared,
            text(answer, 5).parse().ok(),
            text(answer, 6).parse().ok(),
        ),
        declared,
        nullable: text(answer, 4) == "YES",
        // `DEFAULT_GENERATED` is MySQL's word for a default that is an expression.
        generated: extra.replace("default_generated", "").contains("generated"),
        touched_on_update: extra.contains("on update"),
    }
}

fn kind(data_type: &str, declared: &str, length: Option<u64>, decimals: Option<u8>) -> Kind {
    let unsigned = declared.to_lowercase().contains("unsigned");
    let integer = |bits: u32| {
        let (negative, positive) = if unsigned { (0, bits) } else { (1 << (bits - 1), bits - 1) };
        Kind::Integer { min: -negative, max: (1 << positive) - 1 }
    };
    match data_type {
        "tinyint" => integer(8),
        "smallint" => integer(16),
        "mediumint" => integer(24),
        "int" => integer(32),
        "bigint" => integer(64),
        "char" | "varchar" => Kind::Text { chars: length },
        "tinytext" => Kind::Text { chars: Some(255) },
        "text" | "mediumtext" | "longtext" => Kind::Text { chars: None },
        "binary" | "varbinary" => Kind::Bytes { bytes: length },
        "tinyblob" => Kind::Bytes { bytes: Some(255) },
        "blob" | "mediumblob" | "longblob" => Kind::Bytes { bytes: None },
        "enum" => Kind::Enum(enum_values(declared)),
        "json" => Kind::Json,
        "uuid" => Kind::Uuid,
        "datetime" => Kind::Moment { decimals: decimals.unwrap_or(0), zoned: false },
        "timestamp" => Kind::Moment { decimals: decimals.unwrap_or(0), zoned: true },
        _ => Kind::Other,
    }
}

/// The values of `enum('a','it''s')`.
fn enum_values(declared: &str) -> Vec<String> {
    let mut values = Vec::new();
    let mut rest = declared;
    while let Some((_, opened)) = rest.split_once('\'') {
        let mut value = String::new();
        let mut inner = opened;
        rest = loop {
            let Some((before, after)) = inner.split_once('\'') else { return values };
            value.push_str(before);
            match after.strip_prefix('\'') {
                Some(next) => {
                    value.push('\'');
                    inner = next;
                }
                None => break after,
            }
        };
        values.push(value);
    }
    values
}

/// Puts the rows of `STATISTICS`, a column of an index each, together.
fn indexes<'a>(answers: impl Iterator<Item = &'a Answer>) -> Vec<Index> {
    let mut indexes: Vec<Index> = Vec::new();
    for answer in answers {
        let name = text(answer, 1);
        if indexes.last().is_none_or(|index| index.name != name) {
            indexes.push(Index {
                name: name.to_owned(),
                unique: text(answer, 2) == "0",
                primary: name == "PRIMARY",
                usable: text(answer, 7) == "BTREE" && text(answer, 8) == "YES",
                parts: Vec::new(),
            });
        }
        let Some(index) = indexes.last_mut() else { continue };
        // MariaDB leaves out the columns that the account may not see.
        let place = text(answer, 3).parse::<usize>().unwrap_or(1);
        let unseen = || Part { column: None, whole: false, descending: false };
        index.parts.resize_with(index.parts.len().max(place - 1).min(64), unseen);
        index.parts.push(Part {
            column: answer.get(4).cloned().flatten(),
            whole: answer.get(6).is_none_or(Option::is_none),
            descending: text(answer, 5) == "D",
        });
    }
    indexes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_an_enum_are_read_with_their_quotes_and_commas() {
        assert_eq!(enum_values("enum('a','it''s','x,y','')"), ["a", "it's", "x,y", ""]);
        assert!(enum_values("enum('broken").is_empty());
    }

    #[test]
    fn the_limits_of_an_integer_come_from_its_declaration() {
        assert_eq!(kind("tinyint", "tinyint(3) unsigned", None, None), Kind::Integer { min: 0, max: 255 });
        assert_eq!(kind("bigint", "bigint", None, None), Kind::Integer { min: i64::MIN.into(), max: i64::MAX.into() });
        assert_eq!(kind("bigint", "bigint unsigned", None, None), Kind::Integer { min: 0, max: u64::MAX.into() });
    }

    #[test]
    fn a_column_of_an_index_that_is_hidden_from_the_account_leaves_a_gap() {
        let part = |place: &str, column: &str| -> Answer {
            ["t", "idx", "1", place, column, "A"].map(|it| Some(it.to_owned())).into_iter().chain([None]).collect()
        };
        let answers = [part("1", "status"), part("3", "next_retry_time")];
        let indexes = indexes(answers.iter());
        assert_eq!(indexes[0].parts.len(), 3);
        assert_eq!(indexes[0].parts[1].column, None);
    }
}
