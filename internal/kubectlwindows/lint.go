package kubectlwindows

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/diagnosis"
	"github.com/windows-nodes/wmco/internal/lint"
)

const (
	// workloads are the kinds that `lint --live` reads by default. If a controller created an object, lint checks only
	// the controller.
	workloads = "deployments,statefulsets,daemonsets,replicasets,cronjobs,jobs,pods"
	chunk     = 500
)

type lintOptions struct {
	files                        []string
	live, all, against, registry bool
}

func (p *plugin) lintCommand() *cobra.Command {
	var o lintOptions
	command := &cobra.Command{
		Use:   "lint FILE... | --live [TYPE[/NAME]...]",
		Short: "Find what in manifests or live objects won't run on Windows nodes, and why",
		Long: `Find what in manifests or live objects won't run on Windows nodes, and why: operating system,
tolerations, builds, security contexts, volumes, commands.

lint checks files without a cluster. With --against-cluster, it reads the Windows builds, RuntimeClasses and
taints of the cluster. The file - is standard input. With --live, lint checks the workloads of the namespace,
or the named workloads.

The exit code is 2 if there is an error. Warnings are about settings that Windows ignores.`,
		Example: `  kubectl windows lint deployment.yaml
  helm template ./chart | kubectl windows lint - --against-cluster --images

  # All workloads of all namespaces, as JSON
  kubectl windows lint --live -A -o json`,
		RunE: func(command *cobra.Command, args []string) error {
			findings, err := p.lint(command.Context(), o, args)
			if err != nil && findings == nil {
				return err
			}
			return p.show(findings, err)
		},
	}
	command.Flags().StringSliceVarP(&o.files, "filename", "f", nil, "file to check, like an argument")
	command.Flags().BoolVar(&o.live, "live", false, "check objects of the cluster")
	command.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "with --live, check all namespaces")
	command.Flags().BoolVar(&o.against, "against-cluster", false,
		"check files against the cluster's nodes and RuntimeClasses")
	command.Flags().BoolVar(&o.registry, "images", false, "ask registries which Windows builds the images support")
	command.MarkFlagsMutuallyExclusive("live", "filename")
	p.outputFlag(command, "json", "yaml")
	return command
}

type findings []lint.Finding

// Print implements printable.
func (f findings) Print(out io.Writer, _ diagnosis.Style) error {
	var text strings.Builder
	_ = lint.Print(&text, f)
	_, err := io.WriteString(out, diagnosis.Visible(text.String()))
	return err
}

// Healthy implements printable.
func (f findings) Healthy() bool {
	return !slices.ContainsFunc(f, func(f lint.Finding) bool { return f.Severity == lint.Error })
}

// `lint` returns the findings. If it could check only some of the objects, it also returns an error.
func (p *plugin) lint(ctx context.Context, o lintOptions, args []string) (findings, error) {
	templates, failed := p.templates(o, args)
	if failed != nil && len(templates) == 0 {
		return nil, failed
	}
	var cluster lint.Cluster
	if o.live || o.against {
		r, err := p.connect()
		if err == nil {
			cluster, err = r.lintCluster(ctx)
		}
		if err != nil {
			return nil, errors.Join(failed, err)
		}
	}
	var ask lint.Images
	if o.registry {
		ask = lint.AskRegistry
	}
	return append(findings{}, lint.Check(ctx, templates, cluster, ask)...), failed
}

// templates reads the pod templates of files, or of objects in the cluster. If some can't be read, it also returns an
// error.
func (p *plugin) templates(o lintOptions, args []string) (templates []lint.Template, err error) {
	builder := resource.NewBuilder(p.flags).Unstructured().ContinueOnError().Flatten()
	if o.live {
		namespace, _, err := p.flags.ToRawKubeConfigLoader().Namespace()
		if err != nil {
			return nil, fmt.Errorf("reading the namespace: %w", err)
		}
		if len(args) == 0 {
			args = []string{workloads}
		}
		builder.NamespaceParam(namespace).DefaultNamespace().AllNamespaces(o.all).
			ResourceTypeOrNameArgs(true, args...).RequestChunksOf(chunk)
	} else {
		if args = append(args, o.files...); len(args) == 0 {
			return nil, errors.New("specify files to check, or set --live")
		}
		builder.Local()
		for _, file := range args {
			if file == "-" {
				builder.Stream(p.In, "stdin")
			} else {
				builder.Path(false, file)
			}
		}
	}
	err = builder.Do().Visit(func(info *resource.Info, err error) error {
		object, isObject := info.Object.(*unstructured.Unstructured)
		if err != nil || !isObject || o.live && metav1.GetControllerOf(object) != nil {
			return err
		}
		found, err := lint.Find(info.Source, object)
		templates = append(templates, found...)
		return err
	})
	if err != nil {
		return templates, fmt.Errorf("reading objects: %w", err)
	}
	return templates, nil
}

func (r *reader) lintCluster(ctx context.Context) (lint.Cluster, error) {
	var nodes corev1.NodeList
	err := r.List(ctx, &nodes, client.MatchingLabels{corev1.LabelOSStable: string(corev1.Windows)})
	if err != nil {
		return lint.Cluster{}, fmt.Errorf("listing nodes: %w", err)
	}
	var classes nodev1.RuntimeClassList
	if err = r.List(ctx, &classes); err != nil {
		return lint.Cluster{}, fmt.Errorf("listing RuntimeClasses: %w", err)
	}
	return lint.ClusterOf(nodes.Items, classes.Items), nil
}
