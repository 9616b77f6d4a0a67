//! The certificates of an encrypted connection, and what can be wrong with them.

use std::{fs, io, path::Path};

use anyhow::{Context, ensure};
use lapin::tcp::{RustlsConnector, RustlsConnectorConfig};
use rustls::{
    CertificateError,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use super::{connect::Failure, endpoint::Endpoint, settings::Tls};

/// Reads the certificates and makes them usable.
pub(super) fn connector(tls: &Tls) -> anyhow::Result<RustlsConnector> {
    let config = match &tls.ca {
        Some(path) => RustlsConnectorConfig::default().with_parsable_certificates(certificates(path)?),
        None => RustlsConnectorConfig::new_with_native_certs().context("read the system's certificate authorities")?,
    };
    match (&tls.cert, &tls.key) {
        (Some(cert), Some(key)) => {
            let read = fs::read(key).with_context(|| format!("read tls.key {}", key.display()))?;
            // The parser's error could quote the key.
            let private = PrivateKeyDer::from_pem_slice(&read).ok();
            let private = private.with_context(|| format!("tls.key {} holds no PEM private key", key.display()))?;
            config
                .connector_with_single_cert(certificates(cert)?, private)
                .with_context(|| format!("use tls.cert {} with tls.key {}", cert.display(), key.display()))
        }
        _ => config.connector_with_no_client_auth().context("prepare TLS"),
    }
}

fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let read = fs::read(path).with_context(|| format!("read the certificates of {}", path.display()))?;
    let found = CertificateDer::pem_slice_iter(&read).collect::<Result<Vec<_>, _>>();
    let found = found.with_context(|| format!("parse the certificates of {}", path.display()))?;
    ensure!(!found.is_empty(), "{} holds no PEM certificate", path.display());
    Ok(found)
}

/// Whether it was TLS that ended a connection. A broker that wants a client certificate says so only after the handshake.
pub(super) fn is_at_fault(error: &io::Error) -> bool {
    fault(error).is_some()
}

fn fault(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

/// What went wrong between us and the broker's certificate, and what to do about it.
pub(super) fn failure(error: &io::Error, endpoint: &Endpoint) -> Failure {
    let Endpoint { host, port, .. } = endpoint;
    let text = match fault(error) {
        Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => format!(
            "the certificate of {host}:{port} is signed by no authority that is trusted here; set tls.ca to its authority"
        ),
        Some(rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => format!("the certificate of {host}:{port} is for another host name than {host}"),
        Some(rustls::Error::InvalidMessage(_)) => {
            format!("{host}:{port} does not answer with TLS; is it the broker's plain port?")
        }
        Some(rustls::Error::AlertReceived(alert)) => {
            format!("{host}:{port} refused the TLS handshake ({alert:?}); does it want tls.cert and tls.key?")
        }
        _ if error.kind() == io::ErrorKind::UnexpectedEof => {
            format!("{host}:{port} closed the connection during the TLS handshake; is it the broker's plain port?")
        }
        _ => format!("the TLS handshake with {host}:{port} failed: {error}"),
    };
    Failure::stubborn("tls", text)
}
