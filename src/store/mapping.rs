//! From the configured names to SQL: quoting, and the text of a statement with the names filled in.

use std::fmt;

use crate::store::settings::{Settings, StatusValue};

/// A table's name as the configuration gives it, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName {
    /// The schema (database); `None` means the connection's own.
    pub schema: Option<String>,
    pub name: String,
}

impl TableName {
    /// Reads `table` or `schema.table`. A part may be quoted with backticks (doubled inside); an unquoted part is taken
    /// as it stands, so that dashes, reserved words and blanks need no quotes and only a dot does.
    ///
    /// # Errors
    /// What is wrong, in one sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        loop {
            let (part, after) = take_part(rest)?;
            if part.is_empty() {
                return Err("a part of the table's name is empty; write `table` or `schema.table`".to_owned());
            }
            parts.push(part);
            match after.strip_prefix('.') {
                Some(next) => rest = next,
                None if after.is_empty() => break,
                None => return Err("a backtick inside a table's name has to be doubled".to_owned()),
            }
        }
        let name = parts.pop().unwrap_or_default();
        let schema = parts.pop();
        if !parts.is_empty() {
            return Err("a table's name has at most two parts; quote a part that holds a dot with backticks".to_owned());
        }
        Ok(Self { schema, name })
    }

    /// The name for SQL, each part between `quote`s.
    pub fn quoted(&self, quote: char) -> String {
        match &self.schema {
            Some(schema) => format!("{}.{}", quote_name(schema, quote), quote_name(&self.name, quote)),
            None => quote_name(&self.name, quote),
        }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{schema}.{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// The first part of a dotted name, and what follows it.
fn take_part(text: &str) -> Result<(String, &str), String> {
    let Some(mut rest) = text.strip_prefix('`') else {
        let end = text.find('.').unwrap_or(text.len());
        let (part, after) = text.split_at(end);
        return Ok((part.to_owned(), after));
    };
    let mut part = String::new();
    loop {
        let Some((before, after)) = rest.split_once('`') else {
            return Err("a backtick in the table's name is not closed".to_owned());
        };
        part.push_str(before);
        match after.strip_prefix('`') {
            Some(more) => {
                part.push('`');
                rest = more;
            }
            None => return Ok((part, after)),
        }
    }
}

/// A name between `quote`s, those inside doubled.
pub fn quote_name(name: &str, quote: char) -> String {
    let mut quoted = String::with_capacity(name.len() + 2);
    quoted.push(quote);
    for character in name.chars() {
        if character == quote {
            quoted.push(quote);
        }
        quoted.push(character);
    }
    quoted.push(quote);
    quoted
}

/// A status as an SQL literal that means the same under every `sql_mode`.
pub fn status_literal(value: &StatusValue) -> String {
    match value {
        StatusValue::Number(number) => number.to_string(),
        // A backslash escapes or not, depending on the server's mode: digits cannot be misread.
        StatusValue::Text(text) if text.contains('\\') => {
            let digits = text.bytes().fold(String::new(), |digits, byte| digits + &format!("{byte:02x}"));
            format!("_utf8mb4 x'{digits}'")
        }
        StatusValue::Text(text) => quote_name(text, '\''),
    }
}

/// The names and values that stand for `{placeholders}` in the statements of one table.
#[derive(Clone, Debug, Default)]
pub struct Names(Vec<(&'static str, String)>);

impl Names {
    /// What every dialect fills alike.
    ///
    /// # Errors
    /// `store.table` does not parse.
    pub fn new(settings: &Settings, quote: char) -> Result<Self, String> {
        let table = TableName::parse(&settings.table)?;
        let columns = &settings.columns;
        let column = |name: &str| quote_name(name, quote);
        let mut names = Self::default();
        names
            .set("table", table.quoted(quote))
            .set("id", column(&columns.id))
            .set("type", column(&columns.bill_type))
            .set("key", column(&columns.key))
            .set("status", column(&columns.status))
            .set("payload", column(&columns.payload))
            .set("retry_count", column(&columns.retry_count))
            .set("next_retry_time", column(&columns.next_retry_time))
            .set("finished_at", column(&columns.finished_at))
            .set("created_at", column(&columns.created_at))
            .set("condition", condition(settings.condition.as_deref()));
        let optional = |name: Option<&String>| name.map_or_else(|| "NULL".to_owned(), |name| column(name));
        names
            .set("headers", optional(columns.headers.as_ref()))
            .set("message_id", optional(columns.message_id.as_ref()))
            .set("version", optional(columns.version.as_ref()));
        let literals: Vec<String> = settings.statuses.pending.values().iter().map(status_literal).collect();
        names
            .set("pending", literals.first().cloned().unwrap_or_default())
            .set("rearmed", literals.first().cloned().unwrap_or_default())
            .set("pending_any", literals.join(", "))
            .set("done", status_literal(&settings.statuses.done))
            .set("failed", status_literal(&settings.statuses.failed));
        for (placeholder, own) in [("attempt_table", "attempt"), ("hold_table", "hold")] {
            names.set(placeholder, own_table(settings, &table, own).quoted(quote));
        }
        Ok(names)
    }

    /// Sets a placeholder, instead of what it stood for.
    pub fn set(&mut self, placeholder: &'static str, text: impl Into<String>) -> &mut Self {
        self.0.retain(|(name, _)| *name != placeholder);
        self.0.push((placeholder, text.into()));
        self
    }

    /// The same names with one more.
    #[must_use]
    pub fn with(&self, placeholder: &'static str, text: impl Into<String>) -> Self {
        let mut names = self.clone();
        names.set(placeholder, text);
        names
    }

    /// The template on one line, its placeholders filled. What is filled in is not filled again.
    ///
    /// # Panics
    /// The template names a placeholder that is not set: a fault of the files under `sql/`, found by any test.
    pub fn fill(&self, template: &str) -> String {
        let line = template.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut filled = String::with_capacity(line.len() * 2);
        let mut rest = line.as_str();
        while let Some((before, (name, after))) =
            rest.split_once('{').and_then(|(before, tail)| Some((before, tail.split_once('}')?)))
        {
            filled.push_str(before);
            let text = self.0.iter().find(|(placeholder, _)| *placeholder == name).map(|(_, text)| text.as_str());
            filled.push_str(text.expect("every placeholder of the files under sql/ is set"));
            rest = after;
        }
        filled.push_str(rest);
        filled
    }
}

/// The name of one of Outbill's own tables: beside the application's, unless `store.own_schema` says otherwise.
pub fn own_table(settings: &Settings, application: &TableName, own: &str) -> TableName {
    TableName {
        schema: settings.own_schema.clone().or_else(|| application.schema.clone()),
        name: format!("{}{own}", settings.own_prefix),
    }
}

/// `store.where` as the rest of a WHERE clause. A comment in it ends where it ends.
fn condition(condition: Option<&str>) -> String {
    match condition.map(str::trim) {
        None | Some("") => String::new(),
        Some(text) if text.contains("--") || text.contains('#') => format!("AND ({text}\n)"),
        Some(text) => format!("AND ({text})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_name_is_one_or_two_parts_with_or_without_backticks() {
        for (text, schema, name) in [
            ("async_bill", None, "async_bill"),
            ("shop.async_bill", Some("shop"), "async_bill"),
            ("my-shop.order", Some("my-shop"), "order"),
            ("`my.shop`.`a``b`", Some("my.shop"), "a`b"),
            ("it's \"odd\"", None, "it's \"odd\""),
        ] {
            let parsed = TableName::parse(text).unwrap();
            assert_eq!((parsed.schema.as_deref(), parsed.name.as_str()), (schema, name), "{text}");
        }
        for text in ["", ".", "a.", ".b", "a.b.c", "`a", "`a`b", "``"] {
            assert!(TableName::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_quote_inside_a_name_is_doubled() {
        assert_eq!(quote_name("a`b", '`'), "`a``b`");
        assert_eq!(TableName::parse("my-shop.order").unwrap().quoted('"'), "\"my-shop\".\"order\"");
    }

    #[test]
    fn a_status_means_the_same_under_every_sql_mode() {
        assert_eq!(status_literal(&StatusValue::Number(-1)), "-1");
        assert_eq!(status_literal(&StatusValue::Text("it's".to_owned())), "'it''s'");
        assert_eq!(status_literal(&StatusValue::Text("a\\".to_owned())), "_utf8mb4 x'615c'");
    }

    #[test]
    fn a_filled_name_keeps_its_blanks_and_braces() {
        let mut names = Names::default();
        names.set("table", "`odd  {id}`").set("id", "`id`");
        assert_eq!(names.fill("/* x */ SELECT {id}\n  FROM {table}\n"), "/* x */ SELECT `id` FROM `odd  {id}`");
    }
}
