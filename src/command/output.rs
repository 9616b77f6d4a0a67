//! The one place that prints.

use std::{
    fmt::Display,
    io::{self, Write},
};

/// Standard output for results and standard error for complaints. A reader that went away (`outbill status | head`) is no
/// fault: what is left is not printed.
pub struct Output {
    results: Box<dyn Write + Send>,
    complaints: Box<dyn Write + Send>,
    /// The first failure to write a result.
    broken: Option<io::Error>,
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Output").field("broken", &self.broken).finish_non_exhaustive()
    }
}

impl Output {
    /// The process's own streams.
    pub fn standard() -> Self {
        Self::new(io::stdout(), io::stderr())
    }

    pub fn new(results: impl Write + Send + 'static, complaints: impl Write + Send + 'static) -> Self {
        Self { results: Box::new(results), complaints: Box::new(complaints), broken: None }
    }

    /// A line of the result.
    pub fn line(&mut self, text: impl Display) {
        self.write(|results| writeln!(results, "{text}"));
    }

    /// A part of a line that is shown at once, for progress on a terminal.
    pub fn part(&mut self, text: impl Display) {
        self.write(|results| write!(results, "{text}").and_then(|()| results.flush()));
    }

    /// A complaint. That it cannot be written can be said nowhere.
    pub fn error(&mut self, text: impl Display) {
        drop(writeln!(self.complaints, "{text}"));
    }

    /// Whether everything was written that somebody still wanted to read.
    ///
    /// # Errors
    /// The first failure, such as a full disk.
    pub fn finish(&mut self) -> io::Result<()> {
        self.write(|results| results.flush());
        match self.broken.take() {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()),
        }
    }

    fn write(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
        if self.broken.is_none() {
            self.broken = write(&mut *self.results).err();
        }
    }
}

/// A length of time as a person says it.
pub(super) fn about(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// A number with its digits in groups of three.
pub(super) fn grouped(number: u64) -> String {
    let (rest, last) = (number / 1_000, number % 1_000);
    if rest == 0 { last.to_string() } else { format!("{},{last:03}", grouped(rest)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_by_three() {
        assert_eq!([0, 999, 10_000, 1_002_003].map(grouped), ["0", "999", "10,000", "1,002,003"]);
    }

    struct Broken(io::ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn a_reader_that_went_away_is_no_fault_and_a_full_disk_is_one() {
        for (kind, is_fine) in [(io::ErrorKind::BrokenPipe, true), (io::ErrorKind::StorageFull, false)] {
            let mut output = Output::new(Broken(kind), Broken(kind));
            output.line("a result");
            output.part("more");
            output.error("a complaint");
            assert_eq!(output.finish().is_ok(), is_fine, "{kind:?}");
        }
    }
}
