//! Logs: one line an event, to standard error, so that a file sink on standard output stays clean. `docs/LOGGING.md` has the
//! fields and the rules.

mod settings;

use std::{
    fmt,
    io::{self, IsTerminal},
};

use tracing::{Level, Metadata, Subscriber, field::Field};
use tracing_subscriber::{
    EnvFilter, Layer,
    field::MakeExt,
    filter::{FilterExt, filter_fn},
    fmt::{
        MakeWriter,
        format::{Writer, debug_fn},
    },
    layer::SubscriberExt,
    registry::LookupSpan,
};

pub use self::settings::{LogFormat, LogSettings};

/// The filter that `log.level` asks for: a level for everything, or directives by module.
///
/// # Errors
/// What is wrong, in one sentence.
pub fn filter(level: &str) -> Result<EnvFilter, String> {
    let wrong = || {
        "must be off, error, warn, info, debug or trace, or directives by module, such as info,outbill::relay=debug"
            .to_owned()
    };
    // A word that is no level would be read as the name of a module, and everything would be silent.
    let is_level = |word: &str| word.eq_ignore_ascii_case("off") || word.parse::<Level>().is_ok();
    let first = level.split(',').next().unwrap_or_default().trim();
    if !first.contains('=') && !is_level(first) {
        return Err(wrong());
    }
    // The error is dropped on purpose: it says less than the sentence above.
    EnvFilter::builder().parse(level.replace(' ', "")).map_err(|_error| wrong())
}

/// Starts logging for the whole process. A second call changes nothing.
pub fn init(settings: &LogSettings) {
    let has_colours = io::stderr().is_terminal();
    let subscriber = tracing_subscriber::registry().with(layer(settings, has_colours, io::stderr));
    // Not `try_init`, which would also let in what libraries write by the `log` crate. Only a second call fails.
    drop(tracing::subscriber::set_global_default(subscriber));
}

fn layer<S, W>(settings: &LogSettings, has_colours: bool, writer: W) -> impl Layer<S> + use<S, W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = filter(&settings.level).unwrap_or_default();
    let layer = match settings.format {
        LogFormat::Text => tracing_subscriber::fmt::layer()
            .with_ansi(has_colours)
            .fmt_fields(debug_fn(write_field).delimited(" "))
            .with_writer(writer)
            .boxed(),
        LogFormat::Json => tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .with_writer(writer)
            .boxed(),
    };
    layer.with_filter(filter.and(filter_fn(may_speak)))
}

/// A field on the line of its event. A type or an error from elsewhere may hold line breaks or escape sequences: shown as
/// they are they could forge a line.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    // Raw identifiers (`r#type`) are a matter of the source only.
    match field.name().trim_start_matches("r#") {
        "message" => {}
        name => write!(writer, "{name}=")?,
    }
    for character in format!("{value:?}").chars() {
        if character.is_control() {
            write!(writer, "{}", character.escape_default())?;
        } else {
            writer.write_char(character)?;
        }
    }
    Ok(())
}

/// Whatever `log.level` says, the libraries that see payloads and passwords stay silent: lapin prints returned messages,
/// frames and its login, sqlx prints statements. What they know of importance they also return as errors, which are logged
/// once where they are handled. Other libraries may warn.
fn may_speak(metadata: &Metadata<'_>) -> bool {
    let library = metadata.target().split("::").next().unwrap_or_default();
    match library {
        "outbill" => true,
        _ if ["lapin", "amq_protocol", "sqlx"].iter().any(|silent| library.starts_with(silent)) => false,
        _ => *metadata.level() <= Level::WARN,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat, level: &str, events: impl FnOnce()) -> String {
        let captured = Captured::default();
        let writer = captured.clone();
        let settings = LogSettings { format, level: level.to_owned() };
        let subscriber = tracing_subscriber::registry().with(layer(&settings, false, move || writer.clone()));
        tracing::subscriber::with_default(subscriber, events);
        String::from_utf8(captured.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_level_or_directives_are_taken_and_anything_else_is_refused() {
        for good in ["info", "OFF", "warn,outbill::relay=debug", "outbill=trace", "error, outbill::sink=info"] {
            assert!(filter(good).is_ok(), "{good}");
        }
        for bad in ["", " ", "loud", "verbose", "5x", "outbill=loud", "info,outbill=9"] {
            assert!(filter(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn libraries_that_see_payloads_and_passwords_stay_silent_at_any_level() {
        let text = logged(LogFormat::Text, "trace,lapin::returned_messages=trace,sqlx::query=trace", || {
            tracing::warn!(target: "lapin::returned_messages", "payload-marker");
            tracing::error!(target: "lapin::channels", "frame-marker");
            tracing::warn!(target: "sqlx::query", "statement-marker");
            tracing::info!(target: "rustls::client", "chatter-marker");
            tracing::warn!(target: "rustls::client", "a warning");
            tracing::trace!(target: "outbill::relay", "our own");
        });
        assert!(!text.contains("marker"), "{text}");
        assert!(text.contains("a warning") && text.contains("our own"), "{text}");
    }

    #[test]
    fn row_data_cannot_forge_a_line() {
        let text = logged(LogFormat::Text, "info", || {
            tracing::info!(target: "outbill::relay", r#type = %"a\nb\u{1b}[31m", error = "c\nd", "one\ntwo");
        });
        assert_eq!(text.trim_end().lines().count(), 1, "{text}");
        assert!(text.contains(r#"one\ntwo type=a\nb\u{1b}[31m error="c\nd""#), "{text}");
    }

    #[test]
    fn json_lines_carry_the_fields_beside_the_message() {
        let text = logged(LogFormat::Json, "info", || {
            tracing::info!(target: "outbill::relay", bill = "7", sink = "rabbit", "settled");
            tracing::debug!(target: "outbill::relay", "hidden");
        });
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&line["bill"], &line["sink"], &line["message"]),
            (&"7".into(), &"rabbit".into(), &"settled".into())
        );
        assert_eq!((&line["level"], &line["target"]), (&"INFO".into(), &"outbill::relay".into()));
    }

    #[test]
    fn text_without_a_terminal_has_no_colours() {
        let text = logged(LogFormat::Text, "info", || tracing::info!(target: "outbill::relay", bill = "7", "settled"));
        assert!(text.contains("bill=\"7\"") && !text.contains('\u{1b}'), "{text}");
    }
}
