package main

// value is a setting in the chart.
type value struct {
	// key is the value's path in values.yaml.
	key string
	// about describes the value, for values.yaml and the schema.
	about string
	// schema is the value's JSON schema, without the description.
	schema schema
	// field is the value's field in the Deployment. The field's content is the default. If adds, component or appends
	// is set, field is the object or list that the value extends. If the value has no field in the Deployment, field is
	// nil.
	field []any
	// places are the value's fields in other objects, rendered by expression.
	places []place
	// expression renders the value. Without an expression, the value itself is rendered.
	expression string
	// `otherwise` contains the default of a value whose field is nil.
	otherwise any
	// adds is the name of a field that is added to the object at field if the value is not empty.
	adds string
	// component names a component of config/ that is applied to the Deployment if the value is not empty. It adds
	// fields; the value is the image of its init container.
	component string
	// appends means that the value is a list, which is appended to the list at field.
	appends bool
}

// place is a field of an object.
type place struct {
	kind, name string
	field      []any
}

type schema map[string]any

// container is the path of the operator's container in its Deployment.
var pod, container = []any{"spec", "template", "spec"}, []any{"spec", "template", "spec", "containers", 0}

// subjects returns the fields with the subject that may read the metrics.
func subjects(key string) []place {
	field := []any{"subjects", 0, key}
	return []place{{"RoleBinding", "prometheus-k8s", field}, {"ClusterRoleBinding", operator + "-metrics", field}}
}

func at(path []any, more ...any) []any { return append(append([]any{}, path...), more...) }

const (
	present = "auto" // on if the cluster has the API that the objects need
	dns     = `^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
)

var (
	text   = schema{"type": "string"}
	choice = schema{"enum": []any{present, true, false}}
	// list is a list whose elements the API server validates.
	list = func(element schema) schema { return schema{"type": "array", "items": element} }
)

// values are all values, in the order of values.yaml.
var values = []value{
	{key: "image.repository", about: "Registry and repository of the operator's image, such as a mirror's.",
		schema: schema{"type": "string", "minLength": 1, "pattern": `^[^\s:@]+(:[0-9]+)?(/[^\s:@]+)+$`},
		field:  at(container, "image"), expression: `{{ include "wmco.image" . | toJson }}`},
	{key: "image.tag", about: "Tag of the image. Empty: v and the chart's appVersion.",
		schema: schema{"type": "string", "pattern": `^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$`}, otherwise: ""},
	{key: "image.digest", about: "Digest of the image: sha256:…. If set, it overrides the tag.",
		schema: schema{"type": "string", "pattern": `^(sha256:[0-9a-f]{64})?$`}, otherwise: ""},
	{key: "image.pullPolicy", about: "When the image is pulled.",
		schema: schema{"enum": []any{"Always", "IfNotPresent", "Never"}}, field: at(container, "imagePullPolicy")},
	{key: "imagePullSecrets", about: "Secrets of the operator's namespace to pull the image with: [{name: …}].",
		schema: list(schema{"type": "object", "required": []any{"name"}, "additionalProperties": false,
			"properties": schema{"name": schema{"type": "string", "pattern": dns}}}),
		otherwise: []any{}, field: pod, adds: "imagePullSecrets"},
	{key: "payload.image", about: "Image with the payload for nodes, by its digest: " +
		"<registry>/wmco-payload@sha256:…. It replaces the payload in the operator's image, and must have the same " +
		"release.",
		schema:    schema{"type": "string", "maxLength": 512, "pattern": `^([^@\s]+@sha256:[0-9a-f]{64})?$`},
		otherwise: "", field: pod, component: "payload"},
	{key: "replicas", about: "Number of operator pods. Only the pod that holds the lease works; the others wait.",
		schema: schema{"type": "integer", "minimum": 1, "maximum": 5}, field: []any{"spec", "replicas"}},
	{key: "resources", about: "CPU and memory of the operator's container.",
		schema: schema{"type": "object", "additionalProperties": false, "properties": schema{
			"requests": schema{"type": "object"}, "limits": schema{"type": "object"}}},
		field: at(container, "resources")},
	{
		key:    "nodeSelector",
		about:  "Labels of the nodes that the operator may run on. They must reach the hosts' SSH port.",
		schema: schema{"type": "object", "additionalProperties": text},
		field:  at(pod, "nodeSelector"),
	},
	{key: "tolerations", about: "Taints that the operator's pod tolerates.", schema: list(schema{"type": "object"}),
		field: at(pod, "tolerations")},
	{key: "priorityClassName", about: "Priority class of the operator's pod.", schema: text,
		field: at(pod, "priorityClassName")},
	{key: "extraArgs", about: "Additional flags of the operator, such as --debugLogging. The operator's --help lists " +
		"all flags.",
		schema: list(schema{"type": "string", "pattern": "^--"}), otherwise: []any{}, field: at(container, "args"),
		appends: true},
	{key: "extraEnv", about: "Additional environment variables of the operator: [{name: …, value: …}].",
		schema: list(schema{"type": "object", "required": []any{"name"},
			"properties": schema{"name": schema{"type": "string", "minLength": 1}}}),
		otherwise: []any{}, field: at(container, "env"), appends: true},
	{
		key: "cluster",
		about: "Kind of the cluster, which determines the installed rights and objects: openshift, or kubernetes for " +
			"every other cluster. auto: openshift if the Infrastructure cluster of config.openshift.io exists. If " +
			"you render templates without a cluster, auto means openshift, so set it.",
		schema:    schema{"enum": []any{present, "openshift", "kubernetes"}},
		otherwise: present,
	},
	{key: "namespace.create", about: "Whether the chart creates the namespace " + namespace +
		". The chart installs everything in this namespace, and supports no other.",
		schema: schema{"type": "boolean"}, otherwise: true},
	{key: "runtimeClasses.create", about: "Whether the chart creates the RuntimeClasses windows2019, windows2022 and " +
		"windows2025. Set it to false if the cluster already has RuntimeClasses with these names.",
		schema: schema{"type": "boolean"}, otherwise: true},
	{
		key: "monitoring.enabled",
		about: "Whether to install ServiceMonitors, alerts and the rights of Prometheus. auto: if the cluster has " +
			"the Prometheus operator's API, and is OpenShift or monitoring.namespace is set.",
		schema: choice, otherwise: present,
	},
	{
		key: "monitoring.namespace",
		about: "Namespace of the Prometheus that reads the metrics, such as monitoring with kube-prometheus. Empty: " +
			"openshift-monitoring on OpenShift; on other clusters, no monitoring is installed.",
		schema:     schema{"type": "string", "pattern": `^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`},
		otherwise:  "",
		expression: `{{ include "wmco.prometheusNamespace" . | toJson }}`,
		places: append(subjects("namespace"), place{"NetworkPolicy", operator + "-metrics", []any{"spec", "ingress", 0,
			"from", 0, "namespaceSelector", "matchLabels", "kubernetes.io/metadata.name"}}),
	},
	{
		key: "monitoring.serviceAccount", about: "ServiceAccount of that Prometheus.",
		schema: schema{"type": "string", "pattern": dns}, otherwise: "prometheus-k8s", places: subjects("name"),
	},
	{
		key: "monitoring.caFile",
		about: "Path, in that Prometheus's container, of the CA that signs for kubernetes.io/kubelet-serving. Empty: " +
			"the path of OpenShift's Prometheus on OpenShift; on other clusters the cluster's CA, which signs these " +
			"certificates if kubeadm created the cluster.",
		schema:     schema{"type": "string", "pattern": `^(/.*)?$`},
		otherwise:  "",
		expression: `{{ include "wmco.kubeletCA" . | toJson }}`,
		places: []place{{"ServiceMonitor", "windows-exporter",
			[]any{"spec", "endpoints", 0, "tlsConfig", "caFile"}}},
	},
	{key: "machineAPI.enabled", about: "Whether to give the operator its rights in openshift-machine-api. auto: if " +
		"that namespace exists. If you render templates without a cluster, set " +
		"it.", schema: choice, otherwise: present},
	{key: "clusterAPI.enabled", about: "Whether to give the operator its rights in openshift-cluster-api. auto: if " +
		"that namespace exists.", schema: choice, otherwise: present},
	{
		key: "flannel.enabled",
		about: "Whether to give the operator, flanneld and kube-proxy on Windows nodes their rights on flannel's " +
			"network. auto: if the namespace kube-flannel exists.",
		schema:    choice,
		otherwise: present,
	},
	{
		key: "workloadGuard.enabled",
		about: "Whether to install the policies that complete pods for Windows in labelled namespaces. auto: if the " +
			"API server has MutatingAdmissionPolicy, as of Kubernetes 1.36.",
		schema:    choice,
		otherwise: present,
	},
	{key: "uninstallCheck", about: "Whether `helm uninstall` fails and lists the WindowsInstances while any exist.",
		schema: schema{"type": "boolean"}, otherwise: true},
}
