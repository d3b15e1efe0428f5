//! FindCoordinator (key 10): the broker that coordinates a group or a transactional id.
//!
//! Versions 0 to 3 ask for one key; from 4 on a list of keys is asked for and answered (KIP-699).

messages! {
    /// The keys whose coordinator is sought.
    pub struct FindCoordinatorRequest<'a> for FindCoordinator {
        /// Group, transactional id, or whatever `key_type` says.
        key: &'a str, [0-3];
        /// 0 group, 1 transactional id.
        key_type: i8, [1+];
        /// All keys sought.
        coordinator_keys: Vec<&'a str>, [4+];
    }

    /// The coordinator of the one key, or of each.
    pub struct FindCoordinatorResponse<'a> for FindCoordinator {
        /// How long the client should hold back, because of a quota.
        throttle_time_ms: i32, [1+];
        /// 0 or an error, see `ErrorCode`.
        error_code: i16, [0-3];
        /// The error in words.
        error_message: Option<&'a str>, [1-3];
        /// Id of the broker, -1 where there is none.
        node_id: i32, [0-3];
        /// Name or address.
        host: &'a str, [0-3];
        /// TCP port.
        port: i32, [0-3];
        /// The answer for each key.
        coordinators: Vec<Coordinator<'a>>, [4+];
    }

    /// The coordinator of one key.
    pub struct Coordinator<'a> {
        /// Group, transactional id, or whatever `key_type` says.
        key: &'a str, [4+];
        /// Id of the broker, -1 where there is none.
        node_id: i32, [4+];
        /// Name or address.
        host: &'a str, [4+];
        /// TCP port.
        port: i32, [4+];
        /// 0 or an error, see `ErrorCode`.
        error_code: i16, [4+];
        /// The error in words.
        error_message: Option<&'a str>, [4+];
    }
}
