//! TLS.

use std::time::Duration;

use idempotency::{OpenError, StoreErrorKind};
use idempotency_redis::RedisStore;
use idempotency_testbed::servers::Redis;

use crate::support::{PATIENT, claim, outcome, run};

#[tokio::test]
async fn a_server_with_a_certificate_of_an_authority_of_ours_is_trusted_and_no_other() {
    let server = Redis::start_tls(&[]);
    let other = Redis::start_tls(&[]);
    let certificate = std::fs::read(server.certificate()).unwrap();
    let trusting =
        |redis: &Redis| RedisStore::options(&redis.url()).root_certificates(&certificate).response_timeout(PATIENT);
    let store = trusting(&server).wait_for_replicas(0, Duration::from_secs(1)).open().await.unwrap();
    run(&store, &claim("k"), &outcome("answer")).await;
    for options in [trusting(&other), RedisStore::options(&server.url())] {
        let error = options.open().await.unwrap_err();
        assert!(matches!(&error, OpenError::Store(error) if error.kind() == StoreErrorKind::Unavailable), "{error:?}");
    }
    for garbage in [b"".as_slice(), b"no PEM"] {
        let opened = RedisStore::options(&server.url()).root_certificates(garbage).open().await;
        assert!(opened.is_err(), "{garbage:?}");
    }
}
