//! DescribeConfigs: every setting with its value, source, default and meaning.

use std::collections::BTreeSet;

use super::config_resource::{Resource, Target};
use crate::config::ConfigEntry;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResponse,
    DescribeConfigsResult, DescribeConfigsSynonym,
};
use crate::server::connection::Context;
use crate::server::dispatch::{CloseReason, PendingReply, Request};

pub(crate) fn handle(context: &Context, request: &Request) -> Result<PendingReply, CloseReason> {
    let mut body: DescribeConfigsRequest<'_> = request.decode()?;
    // Each once, however often it is named: a small request must not ask for a huge reply.
    let mut named = BTreeSet::new();
    body.resources
        .retain(|resource| named.insert((resource.resource_type, resource.resource_name)));
    let found: Vec<_> = body
        .resources
        .iter()
        .map(|resource| entries(context, resource))
        .collect();
    let results = body
        .resources
        .iter()
        .zip(&found)
        .map(|(asked, found)| match found {
            Ok(entries) => DescribeConfigsResult {
                resource_type: asked.resource_type,
                resource_name: asked.resource_name,
                configs: entries
                    .iter()
                    .filter(|entry| is_asked_for(asked, entry))
                    .map(|entry| describe(entry, &body))
                    .collect(),
                ..DescribeConfigsResult::default()
            },
            Err((code, message)) => DescribeConfigsResult {
                error_code: code.code(),
                error_message: Some(message),
                resource_type: asked.resource_type,
                resource_name: asked.resource_name,
                ..DescribeConfigsResult::default()
            },
        });
    request.reply(&DescribeConfigsResponse {
        results: results.collect(),
        ..DescribeConfigsResponse::default()
    })
}

fn is_asked_for(asked: &DescribeConfigsResource<'_>, entry: &ConfigEntry) -> bool {
    asked
        .configuration_keys
        .as_ref()
        .is_none_or(|keys| keys.contains(&entry.key.name))
}

fn entries(
    context: &Context,
    asked: &DescribeConfigsResource<'_>,
) -> Result<Vec<ConfigEntry>, (ErrorCode, String)> {
    let config = context.shard.config();
    let image = context.shard.image();
    match Resource::find(&image, asked.resource_type, asked.resource_name)? {
        Resource {
            target: Target::Topic(topic),
            ..
        } => Ok(config.describe_topic(&topic.configs)),
        Resource {
            target: Target::Broker,
            ..
        } => Ok(config.describe()),
    }
}

fn describe<'a>(
    entry: &'a ConfigEntry,
    body: &DescribeConfigsRequest<'_>,
) -> DescribeConfigsResourceResult<'a> {
    let synonym = |synonym: &'a crate::config::ConfigSynonym| DescribeConfigsSynonym {
        name: synonym.name,
        value: Some(&synonym.value),
        source: synonym.source.code(),
    };
    let synonyms = if body.include_synonyms {
        entry.synonyms.as_slice()
    } else {
        &[]
    };
    DescribeConfigsResourceResult {
        name: entry.key.name,
        value: entry.value.as_deref(),
        read_only: entry.read_only,
        config_source: entry.source.code(),
        is_sensitive: false,
        synonyms: synonyms.iter().map(synonym).collect(),
        config_type: entry.key.kind.code(),
        documentation: body.include_documentation.then_some(entry.key.doc),
    }
}
