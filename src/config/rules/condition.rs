//! `store.where` goes into every statement: it has to stay inside its parentheses.

/// # Errors
/// What would let the condition reach beyond itself, in one sentence.
pub(super) fn check(condition: &str) -> Result<(), &'static str> {
    if condition.trim().is_empty() {
        return Err("is empty; leave the key out");
    }
    let mut depth = 0_usize;
    let mut rest = condition;
    while let Some(character) = rest.chars().next() {
        rest = rest.get(character.len_utf8()..).unwrap_or_default();
        match character {
            '\'' | '"' | '`' => rest = after_quoted(rest, character).ok_or("holds a quote that is not closed")?,
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1).ok_or("closes a parenthesis that it did not open")?,
            ';' => return Err("holds a `;`; it takes one condition, not statements"),
            '#' => return Err("holds a comment (`#`)"),
            '-' if rest.starts_with('-') => return Err("holds a comment (`--`)"),
            '/' if rest.starts_with('*') => return Err("holds a comment (`/*`)"),
            '\0' => return Err("holds a NUL character"),
            _ => {}
        }
    }
    if depth > 0 { Err("opens a parenthesis that it does not close") } else { Ok(()) }
}

/// What follows the closing quote. A doubled quote is two texts side by side here, which comes to the same. A backslash
/// could mean either of two things, depending on the server's mode: only the one that no mode can misread is taken.
fn after_quoted(text: &str, quote: char) -> Option<&str> {
    let (inside, after) = text.split_once(quote)?;
    if inside.ends_with('\\') { None } else { Some(after) }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn a_condition_stays_inside_its_parentheses() {
        for good in [
            "deleted_at IS NULL",
            "tenant IN (1, 2) AND (a = ';' OR b = 'it''s -- fine')",
            "`odd;name` = \"#\" AND a - -1 > 0",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "  ",
            "1=1; DROP TABLE x",
            "1=1) OR (1=1",
            "(1=1",
            "1=1 -- rest",
            "1=1 # rest",
            "1=1 /* rest",
            "a = 'open",
            "a = '\\' OR ';'",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
