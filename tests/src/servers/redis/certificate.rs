//! A certificate for a server that speaks TLS.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::servers::keeper::succeed;

/// A certificate for 127.0.0.1 and localhost that is its own authority.
#[derive(Debug)]
pub(super) struct Certificate {
    file: PathBuf,
    key: PathBuf,
}

impl Certificate {
    pub(super) fn new(folder: &Path) -> Self {
        let certificate = Self { file: folder.join("certificate.pem"), key: folder.join("key.pem") };
        assert!(Path::new("/usr/bin/openssl").exists(), "OpenSSL is missing: install the Debian package `openssl`");
        let mut openssl = Command::new("/usr/bin/openssl");
        openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
        // Not an authority for others: clients refuse such a certificate as a server's own.
        openssl.args(["-days", "2", "-subj", "/CN=localhost", "-addext", "basicConstraints=critical,CA:FALSE"]);
        openssl.args(["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]);
        openssl.arg("-keyout").arg(&certificate.key).arg("-out").arg(&certificate.file);
        succeed(&mut openssl);
        certificate
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    pub(super) fn configure(&self, server: &mut Command) {
        server.arg("--tls-cert-file").arg(&self.file).arg("--tls-key-file").arg(&self.key);
        server.arg("--tls-ca-cert-file").arg(&self.file).args(["--tls-auth-clients", "no"]);
    }
}
