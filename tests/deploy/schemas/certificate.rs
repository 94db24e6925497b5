//! The Certificate of cert-manager, from version 3.20260606.152110 of `kcr_cert_manager_io`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Certificate {
    api_version: String,
    kind: String,
    metadata: ObjectMeta,
    spec: CertificateSpec,
}

#[derive(Deserialize, Serialize)]
struct CertificateSpec {
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "additionalOutputFormats")]
    additional_output_formats: Option<Vec<CertificateAdditionalOutputFormats>>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "commonName")]
    common_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "dnsNames")]
    dns_names: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    duration: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "emailAddresses")]
    email_addresses: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "encodeUsagesInRequest")]
    encode_usages_in_request: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "ipAddresses")]
    ip_addresses: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "isCA")]
    is_ca: Option<bool>,
    #[serde(rename = "issuerRef")]
    issuer_ref: CertificateIssuerRef,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keystores: Option<CertificateKeystores>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "literalSubject")]
    literal_subject: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "nameConstraints")]
    name_constraints: Option<CertificateNameConstraints>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "otherNames")]
    other_names: Option<Vec<CertificateOtherNames>>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "privateKey")]
    private_key: Option<CertificatePrivateKey>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "renewBefore")]
    renew_before: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "renewBeforePercentage")]
    renew_before_percentage: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    renewal: Option<CertificateRenewal>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "revisionHistoryLimit")]
    revision_history_limit: Option<i32>,
    #[serde(rename = "secretName")]
    secret_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "secretTemplate")]
    secret_template: Option<CertificateSecretTemplate>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "signatureAlgorithm")]
    signature_algorithm: Option<CertificateSignatureAlgorithm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subject: Option<CertificateSubject>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uris: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usages: Option<Vec<String>>,
}

#[derive(Deserialize, Serialize)]
struct CertificateAdditionalOutputFormats {
    #[serde(rename = "type")]
    r#type: CertificateAdditionalOutputFormatsType,
}

#[derive(Deserialize, Serialize)]
enum CertificateAdditionalOutputFormatsType {
    #[serde(rename = "DER")]
    Der,
    #[serde(rename = "CombinedPEM")]
    CombinedPem,
}

#[derive(Deserialize, Serialize)]
struct CertificateIssuerRef {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    name: String,
}

#[derive(Deserialize, Serialize)]
struct CertificateKeystores {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    jks: Option<CertificateKeystoresJks>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pkcs12: Option<CertificateKeystoresPkcs12>,
}

#[derive(Deserialize, Serialize)]
struct CertificateKeystoresJks {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    alias: Option<String>,
    create: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    password: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "passwordSecretRef")]
    password_secret_ref: Option<CertificateKeystoresJksPasswordSecretRef>,
}

#[derive(Deserialize, Serialize)]
struct CertificateKeystoresJksPasswordSecretRef {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    name: String,
}

#[derive(Deserialize, Serialize)]
struct CertificateKeystoresPkcs12 {
    create: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    password: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "passwordSecretRef")]
    password_secret_ref: Option<CertificateKeystoresPkcs12PasswordSecretRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    profile: Option<CertificateKeystoresPkcs12Profile>,
}

#[derive(Deserialize, Serialize)]
struct CertificateKeystoresPkcs12PasswordSecretRef {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    name: String,
}

#[derive(Deserialize, Serialize)]
enum CertificateKeystoresPkcs12Profile {
    #[serde(rename = "LegacyRC2")]
    LegacyRc2,
    #[serde(rename = "LegacyDES")]
    LegacyDes,
    Modern2023,
    Modern2026,
}

#[derive(Deserialize, Serialize)]
struct CertificateNameConstraints {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    critical: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    excluded: Option<CertificateNameConstraintsExcluded>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    permitted: Option<CertificateNameConstraintsPermitted>,
}

#[derive(Deserialize, Serialize)]
struct CertificateNameConstraintsExcluded {
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "dnsDomains")]
    dns_domains: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "emailAddresses")]
    email_addresses: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "ipRanges")]
    ip_ranges: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "uriDomains")]
    uri_domains: Option<Vec<String>>,
}

#[derive(Deserialize, Serialize)]
struct CertificateNameConstraintsPermitted {
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "dnsDomains")]
    dns_domains: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "emailAddresses")]
    email_addresses: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "ipRanges")]
    ip_ranges: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "uriDomains")]
    uri_domains: Option<Vec<String>>,
}

#[derive(Deserialize, Serialize)]
struct CertificateOtherNames {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    oid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "utf8Value")]
    utf8_value: Option<String>,
}

#[derive(Deserialize, Serialize)]
struct CertificatePrivateKey {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    algorithm: Option<CertificatePrivateKeyAlgorithm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encoding: Option<CertificatePrivateKeyEncoding>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "rotationPolicy")]
    rotation_policy: Option<CertificatePrivateKeyRotationPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<i64>,
}

#[derive(Deserialize, Serialize)]
enum CertificatePrivateKeyAlgorithm {
    #[serde(rename = "RSA")]
    Rsa,
    #[serde(rename = "ECDSA")]
    Ecdsa,
    Ed25519,
}

#[derive(Deserialize, Serialize)]
enum CertificatePrivateKeyEncoding {
    #[serde(rename = "PKCS1")]
    Pkcs1,
    #[serde(rename = "PKCS8")]
    Pkcs8,
}

#[derive(Deserialize, Serialize)]
enum CertificatePrivateKeyRotationPolicy {
    Never,
    Always,
}

#[derive(Deserialize, Serialize)]
struct CertificateRenewal {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policy: Option<CertificateRenewalPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    windows: Option<Vec<CertificateRenewalWindows>>,
}

#[derive(Deserialize, Serialize)]
enum CertificateRenewalPolicy {
    RenewBefore,
    Disabled,
}

#[derive(Deserialize, Serialize)]
struct CertificateRenewalWindows {
    cron: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timezone: Option<String>,
    #[serde(rename = "windowDuration")]
    window_duration: String,
}

#[derive(Deserialize, Serialize)]
struct CertificateSecretTemplate {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    annotations: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize, Serialize)]
enum CertificateSignatureAlgorithm {
    #[serde(rename = "SHA256WithRSA")]
    Sha256WithRsa,
    #[serde(rename = "SHA384WithRSA")]
    Sha384WithRsa,
    #[serde(rename = "SHA512WithRSA")]
    Sha512WithRsa,
    #[serde(rename = "ECDSAWithSHA256")]
    EcdsaWithSha256,
    #[serde(rename = "ECDSAWithSHA384")]
    EcdsaWithSha384,
    #[serde(rename = "ECDSAWithSHA512")]
    EcdsaWithSha512,
    PureEd25519,
}

#[derive(Deserialize, Serialize)]
struct CertificateSubject {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    countries: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    localities: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "organizationalUnits")]
    organizational_units: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    organizations: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "postalCodes")]
    postal_codes: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    provinces: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "serialNumber")]
    serial_number: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "streetAddresses")]
    street_addresses: Option<Vec<String>>,
}
