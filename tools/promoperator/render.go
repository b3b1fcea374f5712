package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus-operator/prometheus-operator/pkg/assets"
	"github.com/prometheus-operator/prometheus-operator/pkg/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// renderer writes prometheus.yaml and rules.*.yaml into dir.
type renderer struct {
	dir, root, server, state, interval, hold string

	// monitors are the ServiceMonitors by the role that finds their targets, and by name.
	monitors map[monitoringv1.ServiceDiscoveryRole]map[string]*monitoringv1.ServiceMonitor
}

// Mounts in the pod of Prometheus.
const (
	serviceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount/"
	configMapDir      = "/etc/prometheus/configmaps/"
)

func (r *renderer) render(manifests io.Reader) error {
	r.monitors = map[monitoringv1.ServiceDiscoveryRole]map[string]*monitoringv1.ServiceMonitor{}
	reader := utilyaml.NewYAMLReader(bufio.NewReader(manifests))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return r.configure()
		}
		kind := metav1.TypeMeta{}
		if err == nil {
			err = yaml.Unmarshal(document, &kind)
		}
		if err != nil {
			return err
		}
		switch kind.Kind {
		case monitoringv1.ServiceMonitorsKind:
			err = r.monitor(document)
		case monitoringv1.PrometheusRuleKind:
			err = r.rule(document)
		}
		if err != nil {
			return err
		}
	}
}

// monitor reads a ServiceMonitor. In the newest Prometheus operator on the module proxy, only the Prometheus object
// has a setting for the role. Newer operators also have the setting in the ServiceMonitor.
func (r *renderer) monitor(document []byte) error {
	monitor := &monitoringv1.ServiceMonitor{}
	var newer struct {
		Spec struct {
			ServiceDiscoveryRole monitoringv1.ServiceDiscoveryRole `json:"serviceDiscoveryRole"`
		} `json:"spec"`
	}
	if err := errors.Join(yaml.Unmarshal(document, monitor), yaml.Unmarshal(document, &newer)); err != nil {
		return err
	}
	for i := range monitor.Spec.Endpoints {
		if r.interval != "" {
			monitor.Spec.Endpoints[i].Interval = monitoringv1.Duration(r.interval)
		}
	}
	role := newer.Spec.ServiceDiscoveryRole
	if role == "" {
		role = monitoringv1.EndpointsRole
	}
	if r.monitors[role] == nil {
		r.monitors[role] = map[string]*monitoringv1.ServiceMonitor{}
	}
	r.monitors[role][monitor.Namespace+"/"+monitor.Name] = monitor
	return nil
}

// rule writes the groups of a PrometheusRule.
func (r *renderer) rule(document []byte) error {
	rule := &monitoringv1.PrometheusRule{}
	if err := yaml.Unmarshal(document, rule); err != nil {
		return err
	}
	for _, group := range rule.Spec.Groups {
		for i := range group.Rules {
			if hold := group.Rules[i].For; hold != nil && r.hold != "" {
				*hold = monitoringv1.Duration(r.hold)
			}
		}
	}
	content, err := yaml.Marshal(rule.Spec)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir, "rules."+rule.Name+".yaml"), content, 0o600)
}

func (r *renderer) configure() error {
	jobs := []any{map[string]any{"job_name": "kube-state-metrics", "honor_labels": true,
		"static_configs": []any{map[string]any{"targets": []string{r.state}}}}}
	for role, monitors := range r.monitors {
		of, err := r.jobs(role, monitors)
		if err != nil {
			return err
		}
		jobs = append(jobs, of...)
	}
	content, err := yaml.Marshal(map[string]any{
		"global":         map[string]string{"scrape_interval": r.interval, "evaluation_interval": r.interval},
		"rule_files":     []string{filepath.Join(r.dir, "rules.*.yaml")},
		"scrape_configs": jobs,
	})
	if err != nil {
		return err
	}
	for _, mounted := range []string{serviceAccountDir, configMapDir} {
		content = bytes.ReplaceAll(content, []byte(mounted), []byte(r.root+mounted))
	}
	content = bytes.ReplaceAll(content, []byte("$(SHARD)"), []byte("0"))
	return os.WriteFile(filepath.Join(r.dir, "prometheus.yaml"), content, 0o600)
}

// jobs returns the Prometheus operator's scrape configuration from ServiceMonitors, for a Prometheus with this
// role.
func (r *renderer) jobs(role monitoringv1.ServiceDiscoveryRole,
	monitors map[string]*monitoringv1.ServiceMonitor) ([]any, error) {
	server := &monitoringv1.Prometheus{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-monitoring", Name: "k8s"}}
	server.Spec.Version = "v3.5.0"
	server.Spec.ServiceDiscoveryRole = &role
	server.Spec.APIServerConfig = &monitoringv1.APIServerConfig{
		Host:          r.server,
		Authorization: &monitoringv1.Authorization{CredentialsFile: serviceAccountDir + "token"},
		TLSConfig:     &monitoringv1.TLSConfig{},
	}
	server.Spec.APIServerConfig.TLSConfig.CAFile = serviceAccountDir + "ca.crt"
	generator, err := prometheus.NewConfigGenerator(nil, server, prometheus.WithEndpointSliceSupport())
	if err != nil {
		return nil, err
	}
	content, err := generator.GenerateServerConfiguration(server, monitors, nil, nil, nil, assets.NewStoreBuilder(nil, nil), nil,
		nil, nil, nil)
	if err != nil {
		return nil, err
	}
	var made struct {
		Jobs []any `json:"scrape_configs"`
	}
	if err = yaml.Unmarshal(content, &made); err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	return made.Jobs, nil
}
