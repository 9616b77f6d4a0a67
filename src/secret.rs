//! Values that may appear in no output.

use std::{fmt, fs, io, path::PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

/// A password, token or key. `Debug` shows that there is one, never which.
#[derive(Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
// `writeOnly` is how the schema tells a secret from a plain text.
#[schemars(extend("writeOnly" = true))]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one call that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Where a secret comes from. A file is read anew on every connect, so that a rotated secret needs no restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    Inline(Secret),
    File(PathBuf),
}

impl SecretSource {
    /// The secret as it is now. Of a file, one trailing line break is dropped, as editors and `echo` leave it.
    ///
    /// # Errors
    /// The file cannot be read; the error names the file and never its content.
    pub fn read(&self) -> io::Result<Secret> {
        match self {
            Self::Inline(secret) => Ok(secret.clone()),
            Self::File(path) => {
                let mut text = fs::read_to_string(path).map_err(|error| {
                    io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display()))
                })?;
                if text.ends_with('\n') {
                    text.pop();
                    if text.ends_with('\r') {
                        text.pop();
                    }
                }
                Ok(Secret(text))
            }
        }
    }
}
