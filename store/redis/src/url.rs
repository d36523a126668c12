//! Where the servers are.

use idempotency::OpenError;
use redis::{ConnectionInfo, IntoConnectionInfo as _};

/// What a URL names.
#[derive(Clone)]
pub(crate) enum Place {
    /// One server.
    Single(ConnectionInfo),
    /// The primary that sentinels name.
    Sentinel {
        sentinels: Vec<ConnectionInfo>,
        service: String,
        /// Database and credentials at the primary.
        primary: ConnectionInfo,
    },
    /// A cluster, by some of its nodes.
    Cluster(Vec<ConnectionInfo>),
}

impl Place {
    /// Reads a URL. Errors never repeat it: it may hold a password.
    pub(crate) fn parse(url: &str) -> Result<Self, OpenError> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| refused("no scheme"))?;
        match scheme {
            "redis" | "rediss" => {
                only_with_tls(scheme)?;
                node(url).map(Self::Single)
            }
            "redis+sentinel" | "rediss+sentinel" => sentinel(scheme, rest),
            "redis+cluster" | "rediss+cluster" => cluster(scheme, rest),
            _ => Err(refused("the scheme is none of redis, rediss, redis+sentinel, redis+cluster")),
        }
    }
}

/// `[user:password@]host:port,host:port/service[/db]`
fn sentinel(scheme: &str, rest: &str) -> Result<Place, OpenError> {
    let scheme = plain(scheme)?;
    let (credentials, hosts, path) = parts(rest)?;
    let (service, database) = path.split_once('/').unwrap_or((path, ""));
    if service.is_empty() {
        return Err(refused("the path names the service that the sentinels watch"));
    }
    let sentinels = hosts.iter().map(|host| node(&format!("{scheme}://{}", with_port(host, 26_379))));
    Ok(Place::Sentinel {
        sentinels: sentinels.collect::<Result<_, _>>()?,
        service: service.to_owned(),
        // Its host is not used.
        primary: node(&format!("{scheme}://{credentials}primary/{database}"))?,
    })
}

/// `[user:password@]host:port,host:port`
fn cluster(scheme: &str, rest: &str) -> Result<Place, OpenError> {
    let scheme = plain(scheme)?;
    let (credentials, hosts, path) = parts(rest)?;
    if !matches!(path, "" | "0") {
        return Err(refused("a cluster has one database, 0"));
    }
    let nodes = hosts.iter().map(|host| node(&format!("{scheme}://{credentials}{host}")));
    nodes.collect::<Result<_, _>>().map(Place::Cluster)
}

/// The scheme of each server of several.
fn plain(scheme: &str) -> Result<&str, OpenError> {
    let plain = scheme.split_once('+').map_or(scheme, |(plain, _)| plain);
    only_with_tls(plain).map(|()| plain)
}

fn only_with_tls(scheme: &str) -> Result<(), OpenError> {
    if scheme == "rediss" && !cfg!(feature = "tls") {
        return Err(refused("this build of idempotency-redis lacks the feature `tls`"));
    }
    Ok(())
}

/// Credentials with their `@`, hosts, and the path without its first `/`.
fn parts(rest: &str) -> Result<(&str, Vec<&str>, &str), OpenError> {
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (credentials, hosts) = match authority.rfind('@') {
        Some(at) => authority.split_at(at + 1),
        None => ("", authority),
    };
    let hosts: Vec<&str> = hosts.split(',').collect();
    if hosts.iter().any(|host| host.is_empty()) {
        return Err(refused("a host is empty"));
    }
    Ok((credentials, hosts, path.trim_end_matches('/')))
}

fn with_port(host: &str, port: u16) -> String {
    // An IPv6 address is in brackets.
    let has_port = host.rsplit_once(':').is_some_and(|(_, last)| !last.ends_with(']'));
    if has_port { host.to_owned() } else { format!("{host}:{port}") }
}

fn node(url: &str) -> Result<ConnectionInfo, OpenError> {
    // What the client says of a URL it cannot read may repeat it.
    url.into_connection_info().map_err(|_| refused("the client cannot read it"))
}

pub(crate) fn refused(why: &str) -> OpenError {
    OpenError::Url(why.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::Place;

    fn ports(nodes: &[redis::ConnectionInfo]) -> Vec<String> {
        nodes.iter().map(|node| node.addr().to_string()).collect()
    }

    #[test]
    fn urls_of_several_servers_are_taken_apart() {
        let Place::Sentinel { sentinels, service, primary } =
            Place::parse("redis+sentinel://app:s%40cret@a:1,b,[::1]:3/main/2").unwrap()
        else {
            panic!("not a sentinel's")
        };
        assert_eq!(ports(&sentinels), ["a:1", "b:26379", "::1:3"]);
        let settings = primary.redis_settings();
        assert_eq!((service.as_str(), settings.db()), ("main", 2));
        assert_eq!((settings.username(), settings.password()), (Some("app"), Some("s@cret")));
        assert_eq!(sentinels[0].redis_settings().password(), None, "sentinels have credentials of their own");

        let Place::Cluster(nodes) = Place::parse("redis+cluster://:pw@a:1,b:2").unwrap() else {
            panic!("not a cluster's")
        };
        assert_eq!(ports(&nodes), ["a:1", "b:2"]);
        assert_eq!(nodes[1].redis_settings().password(), Some("pw"));
    }
}
