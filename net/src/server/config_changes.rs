//! Changes to the settings of topics and of the broker.
//!
//! The control thread's part of AlterConfigs and IncrementalAlterConfigs: what may be set is the
//! configuration's to say; here it is stored, shown, and given to the logs it concerns.

use tokio::sync::oneshot;

use super::control::{Control, storage};
use super::control_request::{ConfigChange, ConfigOps, TopicError};
use super::shard_request::{ShardRequest, View};
use crate::config::{Change, ConfigMap, ResourceKind, alter, validate};
use crate::metadata::TopicImage;

impl Control {
    pub(super) async fn alter_configs(
        &mut self,
        change: ConfigChange,
        validate_only: bool,
    ) -> Result<(), TopicError> {
        let current = match change.resource {
            ResourceKind::Topic => {
                let topic = self.catalog.image().topic(&change.name);
                topic
                    .ok_or_else(|| TopicError::Unknown(change.name.clone()))?
                    .configs
                    .clone()
            }
            ResourceKind::Broker => {
                if !change.name.is_empty() && change.name != self.config.node_id.to_string() {
                    return Err(TopicError::UnknownBroker(change.name));
                }
                self.catalog.image().broker_configs.clone()
            }
        };
        let altered = altered(change.resource, &current, &change.change)?;
        if change.resource == ResourceKind::Broker {
            self.config.with_dynamic(&altered)?;
        }
        if validate_only || altered == current {
            return Ok(());
        }
        self.catalog
            .update(|image| match change.resource {
                ResourceKind::Topic => {
                    let topic = image.topic(&change.name).expect("it was just found");
                    image.put_topic(TopicImage {
                        configs: altered,
                        ..TopicImage::clone(topic)
                    });
                }
                ResourceKind::Broker => image.broker_configs = altered,
            })
            .map_err(storage)?;
        self.publish().await;
        let view = self.view();
        for topic in view.image.topics() {
            if change.resource == ResourceKind::Broker || topic.name.as_ref() == change.name {
                self.configure(topic, &view).await;
            }
        }
        Ok(())
    }

    async fn configure(&self, topic: &TopicImage, view: &View) {
        let config = view.config.log_config(&topic.configs);
        for id in topic.partition_ids() {
            let (reply, done) = oneshot::channel();
            self.send(id, ShardRequest::Configure(id, config.clone(), reply))
                .await;
            let _ = done.await;
        }
    }
}

fn altered(resource: ResourceKind, current: &ConfigMap, change: &ConfigOps) -> Result<ConfigMap, TopicError> {
    match change {
        ConfigOps::Replace(configs) => {
            let given = configs
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), value.clone()?)));
            Ok(validate(resource, &given.collect())?)
        }
        ConfigOps::Alter(changes) => {
            let changes: Vec<_> = changes
                .iter()
                .map(|(name, op, value)| Change {
                    name,
                    op: *op,
                    value: value.as_deref(),
                })
                .collect();
            Ok(alter(resource, current, &changes)?)
        }
    }
}
