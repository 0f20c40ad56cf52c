//! TLS. Owns the configuration with its own crypto provider (never a process-wide one, which only a binary may set) and
//! the certificates that are trusted: the platform's and those that the environment adds.

use std::path::PathBuf;
use std::sync::Arc;

use open_agent_model::Env;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use crate::HttpError;

const EXTRA: &[&str] = &["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"];

pub(crate) fn config(env: &Env, with_roots: bool) -> Result<ClientConfig, HttpError> {
    let mut roots = RootCertStore::empty();
    if with_roots {
        // Single certificates that cannot be read are common on real machines and no reason to fail.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        for variable in EXTRA {
            add_file(&mut roots, env, variable)?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(HttpError::Tls)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn add_file(roots: &mut RootCertStore, env: &Env, variable: &'static str) -> Result<(), HttpError> {
    let Some(path) = env.get(variable).map(PathBuf::from) else { return Ok(()) };
    let certificates = CertificateDer::pem_file_iter(&path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match certificates {
        Ok(list) => {
            let (added, _) = roots.add_parsable_certificates(list);
            if added == 0 { Err(HttpError::NoCertificate { variable, path }) } else { Ok(()) }
        }
        Err(source) => Err(HttpError::Certificates { variable, path, source }),
    }
}
