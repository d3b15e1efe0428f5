//! The three requests of the Kafka protocol that a comparison makes itself, written by hand.
//!
//! Independent of ringlog's own protocol code on purpose: the harness must work against any broker, and a
//! mistake of ours must not hide itself. Only old, inflexible versions are used.

use super::Result;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);
const CORRELATION_ID: i32 = 7;
const REPLY_BYTES_MAX: usize = 1 << 20;

/// ApiVersions, version 0: succeeds when the broker answers, which may be later than it accepts.
///
/// # Errors
/// When it does not answer.
pub(crate) fn ping(address: SocketAddr) -> Result<()> {
    request(address, 18, 0, &[]).map(drop)
}

/// CreateTopics, version 2, with one replica of each partition.
///
/// # Errors
/// When the broker cannot be reached or refuses.
pub(crate) fn create_topic(
    address: SocketAddr,
    topic: &str,
    partitions: u32,
    configs: &[(&str, &str)],
) -> Result<()> {
    let mut body = Vec::new();
    put_count(&mut body, 1);
    put_string(&mut body, topic);
    body.extend(partitions.to_be_bytes());
    body.extend(1_i16.to_be_bytes());
    put_count(&mut body, 0);
    put_count(&mut body, configs.len());
    for (name, value) in configs {
        put_string(&mut body, name);
        put_string(&mut body, value);
    }
    body.extend((TIMEOUT.as_millis() as i32).to_be_bytes());
    body.push(0);
    let reply = request(address, 19, 2, &body)?;
    check_topic_error("create", topic, &reply)
}

/// DeleteTopics, version 1.
///
/// # Errors
/// When the broker cannot be reached or refuses.
pub(crate) fn delete_topic(address: SocketAddr, topic: &str) -> Result<()> {
    let mut body = Vec::new();
    put_count(&mut body, 1);
    put_string(&mut body, topic);
    body.extend((TIMEOUT.as_millis() as i32).to_be_bytes());
    let reply = request(address, 20, 1, &body)?;
    check_topic_error("delete", topic, &reply)
}

/// Both replies begin alike: throttle time, one topic, its name, its error code.
fn check_topic_error(what: &str, topic: &str, reply: &[u8]) -> Result<()> {
    let at = 4 + 4 + 2 + topic.len();
    let Some(&[high, low]) = reply.get(at..at + 2) else {
        return Err(format!(
            "cannot {what} topic {topic}: the reply of {} bytes is too short",
            reply.len()
        )
        .into());
    };
    match i16::from_be_bytes([high, low]) {
        0 => Ok(()),
        code => Err(format!("cannot {what} topic {topic}: error code {code}").into()),
    }
}

/// Sends one request on a connection of its own; returns the reply's body.
fn request(address: SocketAddr, api_key: i16, version: i16, body: &[u8]) -> Result<Vec<u8>> {
    let mut frame = Vec::new();
    frame.extend(api_key.to_be_bytes());
    frame.extend(version.to_be_bytes());
    frame.extend(CORRELATION_ID.to_be_bytes());
    put_string(&mut frame, "bench");
    frame.extend(body);
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(&(frame.len() as u32).to_be_bytes())?;
    stream.write_all(&frame)?;
    let mut header = [0_u8; 8];
    stream.read_exact(&mut header)?;
    let [a, b, c, d, e, f, g, h] = header;
    let len = u32::from_be_bytes([a, b, c, d]) as usize;
    if i32::from_be_bytes([e, f, g, h]) != CORRELATION_ID || !(4..=REPLY_BYTES_MAX).contains(&len) {
        return Err(format!("{address} answered something else than a reply").into());
    }
    let mut reply = vec![0; len - 4];
    stream.read_exact(&mut reply)?;
    Ok(reply)
}

fn put_count(bytes: &mut Vec<u8>, count: usize) {
    bytes.extend((count as u32).to_be_bytes());
}

fn put_string(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u16).to_be_bytes());
    bytes.extend(text.as_bytes());
}
