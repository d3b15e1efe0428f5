//! What DescribeConfigs and the alter requests may name.

use std::sync::Arc;

use crate::config::ResourceKind;
use crate::metadata::{MetadataImage, TopicImage};
use crate::protocol::error_code::ErrorCode;
use crate::server::error_map;

const TOPIC: i8 = 2;
const BROKER: i8 = 4;

/// A resource that exists.
pub(super) struct Resource {
    pub(super) target: Target,
}

pub(super) enum Target {
    Topic(Arc<TopicImage>),
    Broker,
}

impl Resource {
    pub(super) fn find(image: &MetadataImage, kind: i8, name: &str) -> Result<Self, (ErrorCode, String)> {
        match resource_kind(kind)? {
            ResourceKind::Topic => match image.topic(name) {
                Some(topic) => Ok(Self {
                    target: Target::Topic(topic.clone()),
                }),
                None => Err((
                    error_map::unknown_topic(name),
                    format!("there is no topic {name}"),
                )),
            },
            // No name stands for the defaults of all brokers, of which this is one.
            ResourceKind::Broker if name.is_empty() || name == image.node_id.to_string() => Ok(Self {
                target: Target::Broker,
            }),
            ResourceKind::Broker => {
                let message = format!("this is broker {}, not \"{name}\"", image.node_id);
                Err((ErrorCode::InvalidRequest, message))
            }
        }
    }
}

/// The kinds of resources that have settings here.
pub(super) fn resource_kind(kind: i8) -> Result<ResourceKind, (ErrorCode, String)> {
    match kind {
        TOPIC => Ok(ResourceKind::Topic),
        BROKER => Ok(ResourceKind::Broker),
        _ => Err((
            ErrorCode::InvalidRequest,
            format!(
                "resources of type {kind} have no settings here; topics ({TOPIC}) and brokers ({BROKER}) do"
            ),
        )),
    }
}
