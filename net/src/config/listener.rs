//! Where the broker listens and what it tells clients: `listeners`, `advertised.listeners` and
//! `listener.security.protocol.map`, parsed and checked against each other.
//!
//! A wildcard address is never advertised: a client would be led to itself.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use super::error::ConfigError;

/// One address the broker listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its name, upper case.
    pub name: String,
    /// The host to bind, a name or an address without brackets; empty for every address.
    pub host: String,
    /// The port to bind; 0 for any free one.
    pub port: u16,
    /// The host clients are told, never a wildcard.
    pub advertised_host: String,
    /// The port clients are told; 0 for the one that was bound.
    pub advertised_port: u16,
}

impl Listener {
    /// Whether it is bound to every address of the machine.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        is_wildcard(&self.host)
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "{}://[{}]:{}", self.name, self.host, self.port)
        } else {
            write!(f, "{}://{}:{}", self.name, self.host, self.port)
        }
    }
}

const LISTENERS: &str = "listeners";
const ADVERTISED: &str = "advertised.listeners";
const PROTOCOL_MAP: &str = "listener.security.protocol.map";
const PLAINTEXT: &str = "PLAINTEXT";
/// Kafka's other protocols. A listener of such a name is meant to have it.
const SECURED: [&str; 3] = ["SSL", "SASL_PLAINTEXT", "SASL_SSL"];
const PLAINTEXT_ONLY: &str = "there is no TLS and no SASL yet, only PLAINTEXT";

/// Puts the three keys together. `reachable_host` is asked only for a wildcard without an advertised
/// address.
pub(super) fn parse_listeners(
    listeners: &str,
    advertised: Option<&str>,
    protocol_map: &str,
    reachable_host: impl Fn() -> String,
) -> Result<Vec<Listener>, ConfigError> {
    let protocols = parse_protocol_map(protocol_map)?;
    let bound = parse_endpoints(LISTENERS, listeners)?;
    for endpoint in &bound {
        let protocol = protocols.get(&endpoint.name).map(String::as_str);
        let is_plain = protocol == Some(PLAINTEXT);
        if !is_plain && (protocol.is_some() || SECURED.contains(&endpoint.name.as_str())) {
            return Err(unusable(LISTENERS, endpoint.text, PLAINTEXT_ONLY));
        }
        if !is_plain {
            return Err(unusable(
                PROTOCOL_MAP,
                protocol_map,
                "every name in listeners needs an entry here",
            ));
        }
        let clash = bound
            .iter()
            .any(|other| other.name != endpoint.name && clashes(other, endpoint));
        if clash {
            return Err(unusable(
                LISTENERS,
                endpoint.text,
                "another listener has that port",
            ));
        }
    }
    let advertised = advertised.map_or_else(|| Ok(Vec::new()), |text| parse_endpoints(ADVERTISED, text))?;
    for endpoint in &advertised {
        if is_wildcard(&endpoint.host) {
            return Err(unusable(
                ADVERTISED,
                endpoint.text,
                "a client cannot connect to a wildcard address",
            ));
        }
        if !bound.iter().any(|listener| listener.name == endpoint.name) {
            return Err(unusable(
                ADVERTISED,
                endpoint.text,
                "there is no listener of that name",
            ));
        }
    }
    Ok(bound
        .into_iter()
        .map(|endpoint| {
            let told = advertised.iter().find(|told| told.name == endpoint.name);
            let (advertised_host, advertised_port) = match told {
                Some(told) => (told.host.clone(), told.port),
                None if is_wildcard(&endpoint.host) => (reachable_host(), endpoint.port),
                None => (endpoint.host.clone(), endpoint.port),
            };
            let Endpoint { name, host, port, .. } = endpoint;
            Listener {
                name,
                host,
                port,
                advertised_host,
                advertised_port,
            }
        })
        .collect())
}

struct Endpoint<'a> {
    name: String,
    host: String,
    port: u16,
    text: &'a str,
}

fn unusable(key: &'static str, value: &str, problem: &'static str) -> ConfigError {
    ConfigError::Unusable {
        key,
        value: value.to_owned(),
        problem,
    }
}

fn is_wildcard(host: &str) -> bool {
    host.is_empty() || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified())
}

/// Port 0 is a different port each time; a wildcard shares its port with nobody.
fn clashes(a: &Endpoint<'_>, b: &Endpoint<'_>) -> bool {
    a.port != 0 && a.port == b.port && (a.host == b.host || is_wildcard(&a.host) || is_wildcard(&b.host))
}

/// The protocol of each name. Those of Kafka that are not there yet may stand here, as in Kafka's own default,
/// for names that no listener has.
fn parse_protocol_map(text: &str) -> Result<BTreeMap<String, String>, ConfigError> {
    let mut protocols = BTreeMap::new();
    for entry in text.split(',').map(str::trim) {
        let Some((name, protocol)) = entry.split_once(':') else {
            return Err(unusable(PROTOCOL_MAP, entry, "expected NAME:PROTOCOL"));
        };
        let protocol = protocol.trim().to_ascii_uppercase();
        if protocol != PLAINTEXT && !SECURED.contains(&protocol.as_str()) {
            return Err(unusable(
                PROTOCOL_MAP,
                entry,
                "the only protocol so far is PLAINTEXT",
            ));
        }
        if protocols
            .insert(name.trim().to_ascii_uppercase(), protocol)
            .is_some()
        {
            return Err(unusable(PROTOCOL_MAP, entry, "the name appears twice"));
        }
    }
    Ok(protocols)
}

fn parse_endpoints<'a>(key: &'static str, text: &'a str) -> Result<Vec<Endpoint<'a>>, ConfigError> {
    let mut endpoints: Vec<Endpoint<'a>> = Vec::new();
    for entry in text.split(',').map(str::trim) {
        let endpoint =
            parse_endpoint(entry).ok_or_else(|| unusable(key, entry, "expected NAME://host:port"))?;
        if endpoints.iter().any(|other| other.name == endpoint.name) {
            return Err(unusable(key, entry, "the name appears twice"));
        }
        endpoints.push(endpoint);
    }
    Ok(endpoints)
}

/// Whether `text` is `NAME://host:port`, of which the host may be empty.
pub(crate) fn is_endpoint(text: &str) -> bool {
    parse_endpoint(text).is_some()
}

fn parse_endpoint(text: &str) -> Option<Endpoint<'_>> {
    let (name, address) = text.split_once("://")?;
    let (host, port) = address.rsplit_once(':')?;
    let named = !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
    if !named || !port.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let host = match host.strip_prefix('[') {
        Some(bracketed) => {
            let address = bracketed.strip_suffix(']')?;
            address.parse::<std::net::Ipv6Addr>().ok()?.to_string()
        }
        None => host.to_owned(),
    };
    let plain = host
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
    if !plain && host.parse::<IpAddr>().is_err() {
        return None;
    }
    Some(Endpoint {
        name: name.to_ascii_uppercase(),
        host,
        port: port.parse().ok()?,
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT";

    fn parse(listeners: &str, advertised: Option<&str>) -> Result<Vec<Listener>, ConfigError> {
        parse_listeners(listeners, advertised, PLAIN, || "broker.example".to_owned())
    }

    fn told(listeners: &str) -> (String, u16) {
        let mut listeners = parse(listeners, None).expect("usable");
        let first = listeners.swap_remove(0);
        (first.advertised_host, first.advertised_port)
    }

    fn problem(listeners: &str, advertised: Option<&str>) -> String {
        parse(listeners, advertised).expect_err("unusable").to_string()
    }

    #[test]
    fn a_wildcard_is_advertised_as_a_host_clients_can_reach() {
        for wildcard in [
            "PLAINTEXT://:9092",
            "PLAINTEXT://0.0.0.0:9092",
            "plaintext://[::]:9092",
        ] {
            assert_eq!(told(wildcard), ("broker.example".to_owned(), 9092), "{wildcard}");
        }
    }

    #[test]
    fn a_bound_address_is_advertised_as_it_is() {
        assert_eq!(told("PLAINTEXT://127.0.0.1:0"), ("127.0.0.1".to_owned(), 0));
        assert_eq!(told("PLAINTEXT://[::1]:9093"), ("::1".to_owned(), 9093));
        assert_eq!(
            told("PLAINTEXT://node-1.example:9"),
            ("node-1.example".to_owned(), 9)
        );
    }

    #[test]
    fn each_listener_takes_the_advertised_address_of_its_name() {
        let parsed = parse(
            "INTERNAL://10.0.0.1:9091, PLAINTEXT://0.0.0.0:9092",
            Some("PLAINTEXT://public.example:19092,internal://inner:9091"),
        )
        .expect("usable");
        assert_eq!(
            (parsed[0].advertised_host.as_str(), parsed[0].advertised_port),
            ("inner", 9091)
        );
        assert_eq!(
            (parsed[1].advertised_host.as_str(), parsed[1].advertised_port),
            ("public.example", 19092)
        );
        assert_eq!(parsed[0].to_string(), "INTERNAL://10.0.0.1:9091");
    }

    #[test]
    fn clashing_ports_and_doubled_names_are_refused() {
        assert!(problem("PLAINTEXT://:1,INTERNAL://127.0.0.1:1", None).contains("has that port"));
        assert!(problem("PLAINTEXT://:1,PLAINTEXT://:2", None).contains("appears twice"));
        assert!(parse("PLAINTEXT://127.0.0.1:1,INTERNAL://127.0.0.2:1", None).is_ok());
        assert!(parse("PLAINTEXT://:0,INTERNAL://:0", None).is_ok());
    }

    #[test]
    fn what_cannot_be_advertised_is_refused_by_its_key() {
        let wildcard = problem("PLAINTEXT://:1", Some("PLAINTEXT://0.0.0.0:1"));
        assert!(
            wildcard.starts_with("advertised.listeners=PLAINTEXT://0.0.0.0:1: "),
            "{wildcard}"
        );
        assert!(problem("PLAINTEXT://:1", Some("INTERNAL://h:1")).contains("no listener of that name"));
    }

    #[test]
    fn the_map_of_kafkas_own_configuration_is_taken_for_plain_listeners() {
        let map = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL";
        let listen = |listeners| parse_listeners(listeners, None, map, String::new);
        assert!(listen("PLAINTEXT://h:1,CONTROLLER://h:2").is_ok());
        let refused = listen("PLAINTEXT://h:1,SSL://h:2").expect_err("no TLS");
        assert!(
            refused.to_string().starts_with("listeners=SSL://h:2: "),
            "{refused}"
        );
    }

    #[test]
    fn names_need_a_protocol_and_only_plaintext_is_one() {
        assert!(problem("OTHER://:1", None).starts_with("listener.security.protocol.map="));
        let tls = parse_listeners("A://:1", None, "A:SSL", String::new).expect_err("unusable");
        assert!(tls.to_string().contains("only PLAINTEXT"), "{tls}");
        let slip = parse_listeners("A://:1", None, "A:PLAIN", String::new).expect_err("unusable");
        assert!(
            slip.to_string().contains("the only protocol so far is PLAINTEXT"),
            "{slip}"
        );
        for name in SECURED {
            let expected = format!("listeners={name}://:1: there is no TLS and no SASL yet, only PLAINTEXT");
            assert_eq!(problem(&format!("{name}://:1"), None), expected);
        }
    }

    #[test]
    fn malformed_addresses_are_refused() {
        for bad in [
            "",
            "9092",
            "://:1",
            "A//:1",
            "A://h",
            "A://h:",
            "A://h:65536",
            "A://[::1:1",
            "A://::1:1:x",
        ]
        .into_iter()
        .chain(["A://h:+1", "A://h/x:1", "A://[h]:1", "A B://h:1"])
        {
            assert!(problem(bad, None).contains("expected NAME://host:port"), "{bad}");
        }
    }
}
