package prometheus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/port"
)

// Options of a Prometheus.
type Options struct {
	Cluster *cluster.Cluster
	// Manifests are the ServiceMonitors and PrometheusRules, in YAML. Other objects are ignored.
	Manifests []byte
	// Namespace and Account are Prometheus' ServiceAccount.
	Namespace, Account string
	// Dir is the directory for its configuration, data and log.
	Dir string
	// KubeState is the address of a server with metrics about pods, like kube-state-metrics.
	KubeState string
	// Nodes is the label selector of the nodes whose kubelets have endpoints. Empty means all nodes.
	Nodes string
	// Interval is the interval between scrapes and between evaluations. Hold is how long an alert's condition must
	// hold. Both replace the values in the manifests, because a test can't wait for half an hour. If Hold is zero, the
	// alerts keep the times in the manifests: see ScaleAlertTimes.
	Interval, Hold time.Duration
	// Progress receives the lines of a build. Nil discards them.
	Progress io.Writer
}

// Paths in the pod of OpenShift's Prometheus.
const (
	serviceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"
	kubeletCADir      = "/etc/prometheus/configmaps/kubelet-serving-ca-bundle"
	// tokenLife is longer than any lab runs.
	tokenLife = 24 * time.Hour
	startTime = time.Minute
)

// Prometheus is a running Prometheus.
type Prometheus struct {
	url  string
	log  string
	port port.Port
	ends []func() error
}

// Build returns the paths of Prometheus and of the program that writes its configuration. If the cache lacks them,
// it builds them, which takes minutes.
func Build(ctx context.Context, options cluster.BuildOptions) (server, operator string, err error) {
	server, err = cluster.BuildOther(ctx, options, "tools/prometheus", "prometheus",
		"github.com/prometheus/prometheus/cmd/prometheus", "remove_all_sd,enable_kubernetes_sd")
	if err == nil {
		operator, err = cluster.BuildOther(ctx, options, "tools/promoperator", "promoperator", ".", "")
	}
	return server, operator, err
}

// Start builds Prometheus if the cache lacks it, and starts it. It returns when Prometheus is ready.
func Start(ctx context.Context, o Options) (_ *Prometheus, err error) {
	server, operator, err := Build(ctx, cluster.BuildOptions{Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	if err = o.mount(ctx); err != nil {
		return nil, err
	}
	hold := ""
	if o.Hold > 0 {
		hold = o.Hold.String()
	}
	render := exec.CommandContext(ctx, operator, "-dir", o.Dir, "-root", o.Dir, "-server", o.Cluster.URL,
		"-kube-state-metrics", o.KubeState, "-interval", o.Interval.String(), "-for", hold)
	render.Stdin = bytes.NewReader(o.Manifests)
	if output, err := render.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("making the configuration: %w: %s", err, output)
	}
	p := &Prometheus{log: filepath.Join(o.Dir, "prometheus.log")}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Stop())
		}
	}()
	if err = p.run(ctx, operator, "-kubelets", o.Cluster.Kubeconfig, "-nodes", o.Nodes); err != nil {
		return nil, err
	}
	if p.port, err = port.Hold(ctx); err != nil {
		return nil, err
	}
	p.url = "http://" + p.port.Address()
	err = p.run(ctx, server, "--config.file="+filepath.Join(o.Dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(o.Dir, "data"), "--web.listen-address="+p.port.Address(),
		"--log.level=warn")
	if err != nil {
		return nil, err
	}
	return p, p.ready(ctx)
}

// mount writes the files that are mounted in the pod: the credential of its ServiceAccount, and the CA of kubelets'
// serving certificates.
func (o Options) mount(ctx context.Context) error {
	config, _, err := o.Cluster.ServiceAccountConfig(ctx, o.Namespace, o.Account, tokenLife)
	if err != nil {
		return err
	}
	for path, content := range map[string]string{
		serviceAccountDir + "/token":    config.BearerToken,
		serviceAccountDir + "/ca.crt":   string(o.Cluster.CAPEM),
		kubeletCADir + "/ca-bundle.crt": string(o.Cluster.CAPEM),
	} {
		path = filepath.Join(o.Dir, filepath.FromSlash(path))
		if err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
			os.WriteFile(path, []byte(content), 0o600)); err != nil {
			return fmt.Errorf("writing the credential of Prometheus: %w", err)
		}
	}
	return nil
}

// run starts a program that runs until Stop.
func (p *Prometheus) run(ctx context.Context, program string, args ...string) error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log of Prometheus: %w", err)
	}
	defer log.Close()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	ended, err := cluster.StartChild(cmd)
	if err != nil {
		return fmt.Errorf("starting %s: %w", filepath.Base(program), err)
	}
	p.ends = append(p.ends, func() error {
		err := cmd.Process.Kill()
		_ = ended() // it is killed
		if errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("%s ended by itself; the end of its log: %s", filepath.Base(program), p.Tail(2000))
		}
		return err
	})
	return nil
}

func (p *Prometheus) ready(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, startTime, true,
		func(ctx context.Context) (bool, error) {
			_, err := p.get(ctx, "/-/ready")
			return err == nil, nil
		})
	if err != nil {
		return fmt.Errorf("waiting for Prometheus: %w; the end of its log: %s", err, p.Tail(2000))
	}
	return nil
}

// Query evaluates an expression at the current time.
func (p *Prometheus) Query(ctx context.Context, expression string) (model.Vector, error) {
	content, err := p.get(ctx, "/api/v1/query?query="+url.QueryEscape(expression))
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data struct {
			Result model.Vector `json:"result"`
		} `json:"data"`
	}
	if err = json.Unmarshal(content, &answer); err != nil {
		return nil, fmt.Errorf("reading the answer to %s: %w", expression, err)
	}
	return answer.Data.Result, nil
}

// Alert is an alert whose condition holds, as Prometheus sends it to its receivers.
type Alert struct {
	State               string
	Labels, Annotations map[string]string
}

// Alerts returns the pending and firing alerts.
func (p *Prometheus) Alerts(ctx context.Context) ([]Alert, error) {
	content, err := p.get(ctx, "/api/v1/alerts")
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data struct {
			Alerts []Alert `json:"alerts"`
		} `json:"data"`
	}
	if err = json.Unmarshal(content, &answer); err != nil {
		return nil, fmt.Errorf("reading the alerts: %w", err)
	}
	return answer.Data.Alerts, nil
}

// limit is the maximum size of a response in bytes.
const limit = 16 << 20

func (p *Prometheus) get(ctx context.Context, path string) (content []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking Prometheus: %w", err)
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if content, err = io.ReadAll(io.LimitReader(response.Body, limit)); err != nil {
		return nil, fmt.Errorf("asking Prometheus: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking Prometheus: %s: %s", response.Status, content)
	}
	return content, nil
}

// Tail returns the end of Prometheus' log.
func (p *Prometheus) Tail(bytes int) string {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-bytes):])
}

// Stop stops Prometheus. A repeated call does nothing.
func (p *Prometheus) Stop() error {
	var all []error
	for _, end := range p.ends {
		all = append(all, end())
	}
	p.ends = nil
	p.port.Release()
	return errors.Join(all...)
}
