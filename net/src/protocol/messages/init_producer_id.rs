//! InitProducerId (key 22): gives a producer its id and epoch.
//!
//! From version 3 on an existing id asks for its next epoch (KIP-360).

messages! {
    /// Asks for an id, or for the next epoch of one.
    pub struct InitProducerIdRequest<'a> for InitProducerId {
        /// The id of a transactional producer.
        transactional_id: Option<&'a str>, [0+];
        /// How long a transaction may stay open.
        transaction_timeout_ms: i32, [0+];
        /// Id of the producer, -1 for none.
        producer_id: i64, [3+] = -1;
        /// Epoch of the producer, -1 for none.
        producer_epoch: i16, [3+] = -1;
    }

    /// The id and epoch to produce with.
    pub struct InitProducerIdResponse for InitProducerId {
        /// How long the client should hold back, because of a quota.
        throttle_time_ms: i32, [0+];
        /// 0 or an error, see `ErrorCode`.
        error_code: i16, [0+];
        /// Id of the producer, -1 for none.
        producer_id: i64, [0+] = -1;
        /// Epoch of the producer, -1 for none.
        producer_epoch: i16, [0+];
    }
}
