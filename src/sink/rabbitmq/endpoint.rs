//! Where the broker is and who we are there: the settings' URL or separate keys, resolved once.

use anyhow::{Context, anyhow, bail, ensure};

use super::settings::{Settings, Tls};
use crate::secret::{Secret, SecretSource};

/// The user and the password that RabbitMQ itself starts with.
const GUEST: &str = "guest";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// Without the brackets of an IPv6 address.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) user: String,
    pub(super) password: SecretSource,
    pub(super) vhost: String,
    pub(super) tls: Option<Tls>,
}

impl Endpoint {
    /// # Errors
    /// What contradicts or is missing. No error quotes the URL or a part of it but its scheme: in a URL that does not
    /// parse, any part may be the password.
    pub(super) fn resolve(settings: &Settings) -> anyhow::Result<Self> {
        let endpoint = match &settings.url {
            Some(url) => Self::from_url(settings, url)?,
            None => Self::from_keys(settings)?,
        };
        for (name, value) in [("user", &endpoint.user), ("vhost", &endpoint.vhost)] {
            ensure!(value.len() <= 255, "{name} is longer than 255 bytes");
        }
        if let Some(tls) = &endpoint.tls {
            ensure!(tls.cert.is_some() == tls.key.is_some(), "tls.cert and tls.key belong together; one is missing");
        }
        Ok(endpoint)
    }

    fn from_keys(settings: &Settings) -> anyhow::Result<Self> {
        let host = settings.host.clone().filter(|host| !host.is_empty()).context("say url, or host and its keys")?;
        let password = own_password(settings)?;
        let (user, password) = match (settings.user.clone(), password) {
            (Some(user), Some(password)) => (user, password),
            (None, None) => (GUEST.to_owned(), SecretSource::Inline(Secret::new(GUEST))),
            (Some(_), None) => bail!("user is set; password or password_file is missing"),
            (None, Some(_)) => bail!("a password is set; user is missing"),
        };
        let tls = settings.tls.clone();
        Ok(Self {
            host: unbracketed(&host).to_owned(),
            port: settings.port.unwrap_or_else(|| default_port(tls.is_some())),
            user,
            password,
            vhost: settings.vhost.clone().unwrap_or_else(|| "/".to_owned()),
            tls,
        })
    }

    fn from_url(settings: &Settings, url: &Secret) -> anyhow::Result<Self> {
        let others = [
            ("host", settings.host.is_some()),
            ("port", settings.port.is_some()),
            ("user", settings.user.is_some()),
            ("vhost", settings.vhost.is_some()),
        ];
        if let Some((name, _)) = others.into_iter().find(|(_, is_set)| *is_set) {
            bail!("url and {name} are both set; keep the one or the other");
        }
        let parts = Url::parse(url.expose())?;
        ensure!(
            parts.encrypts || settings.tls.is_none(),
            "tls is set, but the url begins with amqp://; write amqps://"
        );
        let own = own_password(settings)?;
        let (user, password) = match (parts.user, parts.password, own) {
            (_, Some(_), Some(_)) => bail!("the url holds a password and another is set beside it; keep one"),
            (Some(user), Some(password), None) => (user, SecretSource::Inline(password)),
            (Some(user), None, Some(own)) => (user, own),
            (Some(_), None, None) => bail!("the url has a user without a password; add it, or set password_file"),
            (None, _, Some(_)) => bail!("a password is set beside a url that names no user"),
            (None, _, None) => (GUEST.to_owned(), SecretSource::Inline(Secret::new(GUEST))),
        };
        Ok(Self {
            host: parts.host,
            port: parts.port.unwrap_or_else(|| default_port(parts.encrypts)),
            user,
            password,
            vhost: parts.vhost,
            tls: parts.encrypts.then(|| settings.tls.clone().unwrap_or_default()),
        })
    }
}

fn own_password(settings: &Settings) -> anyhow::Result<Option<SecretSource>> {
    match (&settings.password, &settings.password_file) {
        (Some(_), Some(_)) => bail!("password and password_file are both set; keep one"),
        (Some(password), None) => Ok(Some(SecretSource::Inline(password.clone()))),
        (None, Some(path)) => Ok(Some(SecretSource::File(path.clone()))),
        (None, None) => Ok(None),
    }
}

fn default_port(encrypts: bool) -> u16 {
    if encrypts { 5671 } else { 5672 }
}

fn unbracketed(host: &str) -> &str {
    host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(host)
}

/// The parts of an AMQP URL, decoded.
struct Url {
    encrypts: bool,
    user: Option<String>,
    password: Option<Secret>,
    host: String,
    port: Option<u16>,
    vhost: String,
}

/// What is wrong with most URLs that do not parse.
const ENCODE: &str = "percent-encode special characters in user, password and vhost (@ is %40, : is %3A, / is %2F, \
                      ? is %3F, # is %23, % is %25), or use the separate keys, whose values need no encoding";

impl Url {
    fn parse(url: &str) -> anyhow::Result<Self> {
        let (encrypts, rest) = if let Some(rest) = url.strip_prefix("amqp://") {
            (false, rest)
        } else if let Some(rest) = url.strip_prefix("amqps://") {
            (true, rest)
        } else {
            bail!("the url does not begin with amqp:// or amqps://");
        };
        ensure!(!rest.contains('#'), "the url has a '#': {ENCODE}");
        ensure!(!rest.contains('?'), "the url has a '?': {ENCODE}; options such as heartbeat have keys of their own");
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (userinfo, place) = match authority.split_once('@') {
            Some((userinfo, place)) => (Some(userinfo), place),
            None => (None, authority),
        };
        ensure!(!place.contains('@'), "the url has more than one '@': {ENCODE}");
        ensure!(!path.contains(['/', '@']), "the url has a '/' in its vhost or before its host: {ENCODE}");
        let (user, password) = match userinfo.map(|userinfo| userinfo.split_once(':').unwrap_or((userinfo, ""))) {
            None | Some(("", "")) => (None, None),
            Some((user, "")) => (Some(decoded(user)?), None),
            Some((user, password)) => (Some(decoded(user)?), Some(Secret::new(decoded(password)?))),
        };
        let (host, port) = host_and_port(place)?;
        let vhost = if path.is_empty() { "/".to_owned() } else { decoded(path)? };
        Ok(Self { encrypts, user, password, host: unbracketed(host).to_owned(), port, vhost })
    }
}

fn host_and_port(place: &str) -> anyhow::Result<(&str, Option<u16>)> {
    let (host, port) = match place.rsplit_once(':') {
        // A colon inside brackets belongs to the IPv6 address.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (place, None),
    };
    ensure!(!host.is_empty(), "the url has no host");
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_') || !byte.is_ascii();
    let is_ipv6 = host.starts_with('[') && host.ends_with(']');
    ensure!(is_ipv6 || host.bytes().all(is_plain), "the url's host is not a host name: {ENCODE}");
    let port = match port.filter(|port| !port.is_empty()) {
        // The parse error is dropped on purpose: it could describe a piece of a password.
        Some(port) => Some(
            port.parse()
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(|| anyhow!("the url's port is no number from 1 to 65535: {ENCODE}"))?,
        ),
        None => None,
    };
    Ok((host, port))
}

fn decoded(text: &str) -> anyhow::Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
        let value = digit().zip(digit()).and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        bytes.push(value.with_context(|| format!("the url has a '%' without two hexadecimal digits: {ENCODE}"))?);
    }
    String::from_utf8(bytes).ok().context("the url's percent-encoded bytes are not UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(yaml_like: &serde_json::Value) -> Settings {
        serde_json::from_value(yaml_like.clone()).unwrap()
    }

    fn from_url(url: &str) -> anyhow::Result<Endpoint> {
        Endpoint::resolve(&settings(&serde_json::json!({ "url": url })))
    }

    fn password(endpoint: &Endpoint) -> String {
        endpoint.password.read().unwrap().expose().to_owned()
    }

    #[test]
    fn a_url_is_read_as_other_clients_read_it() {
        for (url, host, port, user, pass, vhost) in [
            ("amqp://localhost", "localhost", 5672, "guest", "guest", "/"),
            ("amqp://localhost/", "localhost", 5672, "guest", "guest", "/"),
            ("amqp://u:p@h:5673/%2f", "h", 5673, "u", "p", "/"),
            ("amqp://u:p@h/shop", "h", 5672, "u", "p", "shop"),
            ("amqp://u:p@h/a%2Fb", "h", 5672, "u", "p", "a/b"),
            ("amqps://u:p@h", "h", 5671, "u", "p", "/"),
            ("amqp://u:p@[::1]:5673/x", "::1", 5673, "u", "p", "x"),
            ("amqp://u:p@[::1]", "::1", 5672, "u", "p", "/"),
            ("amqp://u:p:q@h", "h", 5672, "u", "p:q", "/"),
            ("amqp://u:p%40ss%3Aw%2Frd%3F%23%25%20%C3%A9@h", "h", 5672, "u", "p@ss:w/rd?#% é", "/"),
            ("amqp://h:/", "h", 5672, "guest", "guest", "/"),
        ] {
            let endpoint = from_url(url).unwrap();
            let read = (endpoint.host.as_str(), endpoint.port, endpoint.user.as_str());
            assert_eq!(read, (host, port, user), "{url}");
            assert_eq!((password(&endpoint).as_str(), endpoint.vhost.as_str()), (pass, vhost), "{url}");
            assert_eq!(endpoint.tls.is_some(), url.starts_with("amqps"), "{url}");
        }
    }

    #[test]
    fn the_password_is_in_no_error_however_broken_the_url_is() {
        for url in [
            "hunter2",
            "http://u:hunter2@h",
            "amqp://u:hunter2",
            "amqp://u:hunter2@",
            "amqp://u:hunter2@h:hunter2",
            "amqp://u:p@hunter2@h",
            "amqp://u:p/hunter2@h",
            "amqp://u:12/hunter2@h",
            "amqp://u:hunter2/x@h/v",
            "amqp://u:p?hunter2@h",
            "amqp://u:p#hunter2@h",
            "amqp://u:hunter2%@h",
            "amqp://u:hunter2%zz@h",
            "amqp://u:hunter2%ff@h",
            "amqp://u:hunter2 @h h",
            "amqp://:hunter2@h:0",
            "amqp://u:hunter2@h?heartbeat=3",
            "amqp://u:hunter2@h/a/b",
        ] {
            let error = format!("{:?}", from_url(url).unwrap_err());
            assert!(!error.contains("hunter2"), "{url}: {error}");
        }
        let debug = format!("{:?}", from_url("amqp://u:hunter2@h").unwrap());
        assert!(!debug.contains("hunter2"), "{debug}");
    }

    #[test]
    fn a_url_with_a_special_character_says_that_it_needs_encoding() {
        for url in ["amqp://u:p@ss@h", "amqp://u:w/rd@h", "amqp://u:a?b@h", "amqp://u:a#b@h", "amqp://u:50%@h"] {
            let error = from_url(url).unwrap_err().to_string();
            assert!(error.contains("percent-encode"), "{url}: {error}");
        }
    }

    #[test]
    fn separate_keys_need_no_encoding() {
        let odd = "p@ss:w/rd?#%25 é";
        let keys = serde_json::json!({ "host": "h", "user": "a b", "password": odd, "vhost": "/x y", "tls": {} });
        let endpoint = Endpoint::resolve(&settings(&keys)).unwrap();
        assert_eq!((password(&endpoint).as_str(), endpoint.user.as_str()), (odd, "a b"));
        assert_eq!((endpoint.vhost.as_str(), endpoint.port), ("/x y", 5671));
    }

    #[test]
    fn contradictions_are_refused_by_name() {
        for (keys, part) in [
            (serde_json::json!({}), "say url"),
            (serde_json::json!({ "url": "amqp://h", "host": "h" }), "url and host are both set"),
            (serde_json::json!({ "url": "amqp://h", "tls": {} }), "amqps://"),
            (serde_json::json!({ "url": "amqp://u:p@h", "password": "q" }), "keep one"),
            (serde_json::json!({ "url": "amqp://u@h" }), "password_file"),
            (serde_json::json!({ "host": "h", "user": "u" }), "password or password_file is missing"),
            (serde_json::json!({ "host": "h", "password": "p" }), "user is missing"),
            (serde_json::json!({ "host": "h", "password": "p", "password_file": "f" }), "keep one"),
            (serde_json::json!({ "host": "h", "tls": { "cert": "c" } }), "belong together"),
        ] {
            let error = Endpoint::resolve(&settings(&keys)).unwrap_err().to_string();
            assert!(error.contains(part), "{keys}: {error}");
        }
        let both = serde_json::json!({ "url": "amqp://u@h", "password_file": "/run/secret" });
        assert!(matches!(Endpoint::resolve(&settings(&both)).unwrap().password, SecretSource::File(_)));
    }
}
