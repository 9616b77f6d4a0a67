//! TLS: private authorities, client certificates, and what is said of wrong ones.

use std::{path::Path, process::Command};

use outbill::{decision::Outcome, sink::Sink};
use serde_json::{Value, json};

use crate::{
    sink_of,
    support::{
        brokers::{Broker, unique},
        sinks::{Rig, message},
    },
};

fn openssl(folder: &Path, arguments: &str) {
    let output = Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// An authority, and a certificate of it for the broker and one for the client; another authority beside it.
fn make_certificates(folder: &Path) {
    for authority in ["ca", "other"] {
        openssl(
            folder,
            &format!(
                "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={authority} -keyout {authority}.key -out {authority}.pem"
            ),
        );
    }
    for (name, subject) in [("server", "localhost"), ("client", "outbill")] {
        openssl(folder, &format!("req -newkey rsa:2048 -nodes -subj /CN={subject} -keyout {name}.key -out {name}.csr"));
        std::fs::write(folder.join("names"), format!("subjectAltName=DNS:{subject}")).unwrap();
        openssl(
            folder,
            &format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out {name}.pem"
            ),
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_encrypted_broker_is_reached_with_its_authority_and_a_client_certificate_and_not_otherwise() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listener = format!("listeners.ssl.1 = 127.0.0.1:{port}");
    let options = [
        listener.as_str(),
        "ssl_options.cacertfile = {DIR}/ca.pem",
        "ssl_options.certfile = {DIR}/server.pem",
        "ssl_options.keyfile = {DIR}/server.key",
        "ssl_options.verify = verify_peer",
        "ssl_options.fail_if_no_peer_cert = true",
    ];
    let mut folder = None;
    let Some(broker) = Broker::private(&options, |path| {
        make_certificates(path);
        folder = Some(path.to_owned());
    }) else {
        return;
    };
    let folder = folder.unwrap();
    let file = |name: &str| folder.join(name);
    let settings = |host: &str, tls: Value| json!({ "host": host, "port": port, "tls": tls });
    let own = json!({ "ca": file("ca.pem"), "cert": file("client.pem"), "key": file("client.key") });

    let application = broker.application().await;
    let queue = unique("encrypted");
    application.declare_queue(&queue, &[]).await;
    let mut rig = Rig::up(sink_of(&settings("localhost", own.clone()))).await;
    let outcomes = rig.deliver((0..100).map(|number| message(number, &["", &queue]))).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Delivered), "{outcomes:?}");
    rig.finish().await;

    let (_, plain_port) = broker.host_and_port();
    for (settings, part) in [
        (settings("127.0.0.1", own.clone()), "is for another host name than 127.0.0.1"),
        (settings("localhost", json!({ "ca": file("other.pem") })), "signed by no authority that is trusted here"),
        (settings("localhost", json!({})), "signed by no authority that is trusted here"),
        (settings("localhost", json!({ "ca": file("ca.pem") })), "does it want tls.cert and tls.key?"),
        (json!({ "host": "localhost", "port": plain_port, "tls": own }), "does not answer with TLS"),
        (json!({ "host": "localhost", "port": port }), "TLS port"),
    ] {
        let findings = sink_of(&settings).check(&[]).await;
        let shown = format!("{findings:?}");
        assert!(findings.len() == 1 && findings[0].is_bad() && shown.contains(part), "{settings}: {shown}");
    }
}
