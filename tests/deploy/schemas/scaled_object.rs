//! The ScaledObject of KEDA, from version 3.20260609.65038 of `kcr_keda_sh`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ScaledObject {
    api_version: String,
    kind: String,
    metadata: ObjectMeta,
    spec: ScaledObjectSpec,
}

#[derive(Deserialize, Serialize)]
struct ScaledObjectSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    advanced: Option<ScaledObjectAdvanced>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "cooldownPeriod")]
    cooldown_period: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fallback: Option<ScaledObjectFallback>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "idleReplicaCount")]
    idle_replica_count: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "initialCooldownPeriod")]
    initial_cooldown_period: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "maxReplicaCount")]
    max_replica_count: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "minReplicaCount")]
    min_replica_count: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "pollingInterval")]
    polling_interval: Option<i32>,
    #[serde(rename = "scaleTargetRef")]
    scale_target_ref: ScaledObjectScaleTargetRef,
    triggers: Vec<ScaledObjectTriggers>,
}

#[derive(Deserialize, Serialize)]
struct ScaledObjectAdvanced {
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        rename = "horizontalPodAutoscalerConfig"
    )]
    horizontal_pod_autoscaler_config: Option<ScaledObjectAdvancedHorizontalPodAutoscalerConfig>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        rename = "restoreToOriginalReplicaCount"
    )]
    restore_to_original_replica_count: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "scalingModifiers")]
    scaling_modifiers: Option<ScaledObjectAdvancedScalingModifiers>,
}

#[derive(Deserialize, Serialize)]
struct ScaledObjectAdvancedHorizontalPodAutoscalerConfig {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    behavior: Option<ScaledObjectAdvancedHorizontalPodAutoscalerConfigBehavior>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

#[derive(Deserialize, Serialize)]
struct ScaledObjectAdvancedHorizontalPodAutoscalerConfigBehavior {
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "scaleDown")]
    scale_down: Option<ScaledObjectAdvancedHorizontalPodAutoscalerConfigBehaviorScaleDown>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "scaleUp")]
    scale_up: Option<ScaledObjectAdvancedHorizontalPodAutoscalerConfigBehaviorScaleUp>,
}

#[derive(Deserialize, Serialize)]
struct ScaledObjectAdvancedHorizontalPodAutoscalerConfigBehaviorScaleDown {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policies:
        Option<Vec<ScaledObjectAdvancedHorizontalPodAutoscalerConfigBehaviorScaleDownPolicies>>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "selectPolicy")]
    select_policy: Option<String>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        rename = "stabilizationWindowSeconds"
    )]
    stabilization_window_seconds: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tolerance: Option<IntOrString>,
}

#[derive(Deserialize, Serialize)]
struct ScaledObjectAdvancedHorizontalPodAutoscalerConfigBehaviorScaleDownPolicies {
    #[serde(rename = "periodSeconds")]
    period_seconds: i32,
    #[serde(rename = "type")]
    r#type: String,
    value: i32,
}

#[derive(Deserialize, Serialize)]
struct ScaledObjectAdvancedHorizontalPodAutoscalerConfigBehaviorScaleUp {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policies: Option<Vec<ScaledObjectAdvancedHorizontalPodAutoscalerConfigBehaviorScaleUpPolicies>>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "selectPolicy")]
    select_policy: Option<String>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        rename = "stabilizationWindowSeconds"
    )]
    stabilization_window_seconds: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tolerance: Option<IntOrString>,
}

#[derive(Deserialize, Serialize)]
struct ScaledObjectAdvancedHorizontalPodAutoscalerConfigBehaviorScaleUpPolicies {
    #[serde(rename = "periodSeconds")]
    period_seconds: i32,
    #[serde(rename = "type")]
    r#type: String,
    value: i32,
}

#[derive(Deserialize, Serialize)]
struct ScaledObjectAdvancedScalingModifiers {
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "activationTarget")]
    activation_target: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    formula: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "metricType")]
    metric_type: Option<ScaledObjectAdvancedScalingModifiersMetricType>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

#[derive(Deserialize, Serialize)]
enum ScaledObjectAdvancedScalingModifiersMetricType {
    AverageValue,
    Value,
}

#[derive(Deserialize, Serialize)]
struct ScaledObjectFallback {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    behavior: Option<ScaledObjectFallbackBehavior>,
    #[serde(rename = "failureThreshold")]
    failure_threshold: i32,
    replicas: i32,
}

#[derive(Deserialize, Serialize)]
enum ScaledObjectFallbackBehavior {
    #[serde(rename = "static")]
    Static,
    #[serde(rename = "currentReplicas")]
    CurrentReplicas,
    #[serde(rename = "currentReplicasIfHigher")]
    CurrentReplicasIfHigher,
    #[serde(rename = "currentReplicasIfLower")]
    CurrentReplicasIfLower,
    #[serde(rename = "scalingModifiers")]
    ScalingModifiers,
}

#[derive(Deserialize, Serialize)]
struct ScaledObjectScaleTargetRef {
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "apiVersion")]
    api_version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "envSourceContainerName")]
    env_source_container_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    name: String,
}

#[derive(Deserialize, Serialize)]
struct ScaledObjectTriggers {
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "authenticationRef")]
    authentication_ref: Option<ScaledObjectTriggersAuthenticationRef>,
    metadata: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "metricType")]
    metric_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(rename = "type")]
    r#type: String,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "useCachedMetrics")]
    use_cached_metrics: Option<bool>,
}

#[derive(Deserialize, Serialize)]
struct ScaledObjectTriggersAuthenticationRef {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<ScaledObjectTriggersAuthenticationRefKind>,
    name: String,
}

#[derive(Deserialize, Serialize)]
enum ScaledObjectTriggersAuthenticationRefKind {
    TriggerAuthentication,
    ClusterTriggerAuthentication,
}
