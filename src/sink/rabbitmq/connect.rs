//! Getting a connection to the broker: TCP, TLS, the AMQP handshake, a channel in confirm mode.

use std::{
    io,
    net::{Shutdown, SocketAddr},
    os::fd::{AsFd, OwnedFd},
    pin::Pin,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures_util::Stream;
use lapin::{
    AsyncTcpStream, Channel, Connection, ConnectionProperties, ErrorKind, Event,
    options::ConfirmSelectOptions,
    protocol::AMQPErrorKind,
    uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo},
};

use super::{endpoint::Endpoint, tls, wire};
use crate::decision::Trouble;

/// What the connection has to say unasked.
pub(super) type Events = Pin<Box<dyn Stream<Item = Event> + Send>>;

/// An open connection with its channel. Dropping it cuts the socket, whatever state the connection is in.
pub(super) struct Link {
    pub(super) channel: Channel,
    pub(super) connection: Connection,
    pub(super) events: Events,
    /// As negotiated, in bytes.
    pub(super) frame_max: u32,
    _socket: Socket,
}

impl Link {
    /// Says goodbye to the broker, if it listens; the socket is cut either way.
    pub(super) async fn close(self) {
        const PATIENCE: Duration = Duration::from_secs(1);
        if let Ok(text) = wire::short("reply", "OK") {
            // Neither a refusal nor the end of our patience changes what happens next.
            drop(tokio::time::timeout(PATIENCE, self.connection.close(200, text)).await);
        }
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) trouble: Trouble,
    /// Whether somebody has to change something first: then asking again soon is in vain.
    pub(super) is_stubborn: bool,
}

impl Failure {
    pub(super) fn soon(class: &'static str, error: impl Into<String>) -> Self {
        Self { trouble: Trouble::new(class, error), is_stubborn: false }
    }

    pub(super) fn stubborn(class: &'static str, error: impl Into<String>) -> Self {
        Self { trouble: Trouble::new(class, error), is_stubborn: true }
    }
}

/// What a connection is asked to be.
#[derive(Debug)]
pub(super) struct Wish<'a> {
    pub(super) endpoint: &'a Endpoint,
    /// Shown in the broker's list of connections.
    pub(super) name: &'a str,
    pub(super) heartbeat: Duration,
    /// For everything together.
    pub(super) timeout: Duration,
}

/// Connects once. Secrets and certificates are read from their files each time.
pub(super) async fn connect(wish: &Wish<'_>) -> Result<Link, Failure> {
    let Endpoint { host, port, .. } = wish.endpoint;
    tokio::time::timeout(wish.timeout, attempt(wish)).await.unwrap_or_else(|_elapsed| {
        let text = format!("{host}:{port} did not answer within {} ms", wish.timeout.as_millis());
        Err(Failure::soon("connect_timeout", text))
    })
}

async fn attempt(wish: &Wish<'_>) -> Result<Link, Failure> {
    let endpoint = wish.endpoint;
    let uri = uri(wish)?;
    let runtime = lapin::runtime::default_runtime().map_err(|error| Failure::stubborn("runtime", error.to_string()))?;
    let mut stream = Err(Failure::soon("dns", format!("{} has no address", endpoint.host)));
    for address in addresses(endpoint).await? {
        stream = AsyncTcpStream::connect(&runtime, address)
            .await
            .map_err(|error| Failure::soon("unreachable", format!("cannot connect to {address}: {error}")));
        if stream.is_ok() {
            break;
        }
    }
    let mut stream = stream?;
    let AsyncTcpStream::Plain(plain) = &stream else { return Err(Failure::soon("unreachable", "no plain TCP")) };
    let socket = Socket::of(plain.get_ref()).map_err(|error| Failure::soon("unreachable", error.to_string()))?;
    if let Some(options) = &endpoint.tls {
        let connector = tls::connector(options).map_err(|error| Failure::stubborn("tls", format!("{error:#}")))?;
        let encrypted = stream.into_rustls(&connector, &endpoint.host).await;
        stream = encrypted.map_err(|error| tls::failure(&error, endpoint))?;
    }
    let ready = Mutex::new(Some(stream));
    let hand_over = async move |_uri, _runtime| {
        let stream = ready.lock().unwrap_or_else(PoisonError::into_inner).take();
        stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected).into())
    };
    let properties = ConnectionProperties::default()
        .with_connection_name(wish.name.into())
        .with_client_property("product".into(), "outbill".into())
        .with_client_property("version".into(), env!("CARGO_PKG_VERSION").into());
    let connection = Connection::connector(uri, runtime, hand_over, properties).await;
    let connection = connection.map_err(|error| handshake_failure(&error, endpoint))?;
    let events = Box::pin(connection.events_listener());
    let channel = confirming_channel(&connection).await.map_err(|error| handshake_failure(&error, endpoint))?;
    let frame_max = connection.configuration().frame_max();
    Ok(Link { channel, connection, events, frame_max, _socket: socket })
}

fn uri(wish: &Wish<'_>) -> Result<AMQPUri, Failure> {
    let endpoint = wish.endpoint;
    let password = endpoint.password.read();
    let password = password.map_err(|error| Failure::stubborn("password_unreadable", error.to_string()))?;
    let heartbeat_s = u16::try_from(wish.heartbeat.as_secs()).unwrap_or(u16::MAX).max(1);
    Ok(AMQPUri {
        scheme: if endpoint.tls.is_some() { AMQPScheme::AMQPS } else { AMQPScheme::AMQP },
        authority: AMQPAuthority {
            userinfo: AMQPUserInfo { username: endpoint.user.clone(), password: password.expose().to_owned() },
            host: endpoint.host.clone(),
            port: endpoint.port,
        },
        vhost: endpoint.vhost.clone(),
        query: AMQPQueryString {
            frame_max: Some(wire::FRAME_MAX),
            heartbeat: Some(heartbeat_s),
            ..AMQPQueryString::default()
        },
    })
}

async fn addresses(endpoint: &Endpoint) -> Result<Vec<SocketAddr>, Failure> {
    let found = tokio::net::lookup_host((endpoint.host.as_str(), endpoint.port)).await;
    let found = found.map_err(|error| Failure::soon("dns", format!("cannot resolve {}: {error}", endpoint.host)))?;
    Ok(found.collect())
}

async fn confirming_channel(connection: &Connection) -> lapin::Result<Channel> {
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok(channel)
}

/// A second handle on the connection's socket. The client library cannot be told to let go of a silent peer: its
/// thread and buffers would wait for the system's TCP timeout, once for each try.
struct Socket(std::net::TcpStream);

impl Socket {
    fn of(stream: &impl AsFd) -> io::Result<Self> {
        let handle: OwnedFd = stream.as_fd().try_clone_to_owned()?;
        Ok(Self(handle.into()))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // It may be closed already, which is as well.
        drop(self.0.shutdown(Shutdown::Both));
    }
}

fn handshake_failure(error: &lapin::Error, endpoint: &Endpoint) -> Failure {
    let Endpoint { host, port, user, vhost, .. } = endpoint;
    match error.kind() {
        ErrorKind::ProtocolError(reply) => {
            let text = reply.get_message();
            match (reply.kind(), reply.get_id()) {
                (AMQPErrorKind::Soft(_), 403) => {
                    Failure::stubborn("credentials_refused", format!("{host}:{port} refuses user {user:?}: {text}"))
                }
                (_, 530) if text.as_str().contains("not found") => {
                    Failure::stubborn("vhost_missing", format!("{host}:{port} has no vhost {vhost:?}: {text}"))
                }
                (_, 530) => Failure::stubborn(
                    "vhost_refused",
                    format!("{host}:{port} refuses user {user:?} on vhost {vhost:?}: {text}"),
                ),
                _ => Failure::soon("handshake", format!("{host}:{port} refuses the connection: {text}")),
            }
        }
        ErrorKind::IOError(error) if tls::is_at_fault(error) => tls::failure(error, endpoint),
        // Neither the parser's nor the authentication's error is quoted: they could hold what was sent.
        ErrorKind::ParsingError(_) | ErrorKind::InvalidProtocolVersion(_) => Failure::stubborn(
            "handshake",
            format!("{host}:{port} does not speak AMQP 0-9-1; is it a TLS port, or another service?"),
        ),
        ErrorKind::IOError(error) => {
            let hint = match &endpoint.tls {
                None => "is it a TLS port?",
                Some(options) if options.cert.is_none() => "does it want tls.cert and tls.key?",
                Some(_) => "does it accept tls.cert?",
            };
            let text = format!("{host}:{port} closed the connection during the handshake ({error}); {hint}");
            Failure::soon("handshake", text)
        }
        ErrorKind::MissingHeartbeatError => Failure::soon("handshake", format!("{host}:{port} fell silent")),
        _ => Failure::soon("handshake", format!("the handshake with {host}:{port} failed")),
    }
}
