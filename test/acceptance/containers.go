package acceptance

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// workload is the workload of row A39: in its own namespace, it has a web server on Windows and a web server on Linux.
type workload struct {
	*run
	namespace string
	// pods are the running pods of the two web servers, by name.
	pods map[string]*corev1.Pod
}

// workloadsWork tests row A39: a web server on Windows and one on Linux reach each other in every way.
func workloadsWork(ctx context.Context, r *run) error {
	if _, err := r.targets(ctx); err != nil {
		return err
	}
	namespace, err := r.makeNamespace(ctx, "work", nil)
	if err != nil {
		return err
	}
	w := workload{run: r, namespace: namespace, pods: map[string]*corev1.Pod{}}
	return errors.Join(w.try(ctx), r.drop(ctx, namespace))
}

// try starts both servers, and tests the network, load balancers, volumes and autoscaling.
func (w workload) try(ctx context.Context) error {
	err := apply(ctx, w.run, w.namespace, "workload.yaml")
	if err != nil {
		return err
	}
	for _, name := range []string{"windows", "linux"} {
		if w.pods[name], err = w.serving(ctx, name); err != nil {
			return err
		}
	}
	problems := w.connects(ctx)
	for _, extra := range []struct {
		need Need
		try  func(context.Context) error
	}{{NeedLoadBalancer, w.balances}, {NeedStorage, w.stores}, {NeedMetrics, w.scales}} {
		if why, lacks := w.Lacks[extra.need]; lacks {
			w.note("%s was not tried: %s", extra.need, why)
			continue
		}
		problems = errors.Join(problems, extra.try(ctx))
	}
	return problems
}

// The method serving waits until a pod answers. It waits as long as for a join, because the image has gigabytes.
func (w workload) serving(ctx context.Context, name string) (*corev1.Pod, error) {
	var found *corev1.Pod
	err := w.await(ctx, w.JoinTimeout, "the pod "+name+" being ready", func(ctx context.Context) (bool, string, error) {
		pods := &corev1.PodList{}
		if err := w.client.List(ctx, pods, client.InNamespace(w.namespace),
			client.MatchingLabels{"wmco-e2e": name}); err != nil || len(pods.Items) == 0 {
			return false, "there is no pod", err
		}
		found = &pods.Items[0]
		for _, c := range found.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return found.Status.PodIP != "", "", nil
			}
		}
		return false, fmt.Sprintf("%s: %s %s", found.Status.Phase, unschedulable(found), waits(found)), nil
	})
	return found, err
}

// The function `waits` returns the reasons why a pod's containers don't run.
func waits(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		if waiting := c.State.Waiting; waiting != nil {
			return waiting.Reason + " " + waiting.Message
		}
	}
	return ""
}

// The method `connects` tests every connection between the pods, Services and hosts.
func (w workload) connects(ctx context.Context) error {
	services := map[string]*corev1.Service{"windows": {}, "linux": {}}
	var problems []error
	for name, service := range services {
		if err := w.client.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, service); err != nil {
			return err
		}
		_, err := w.ask(ctx, w.pods[name], "/hostname", nil)
		problems = append(problems, tell("from the API server to the pod "+name, err))
	}
	for from, to := range map[string]string{"windows": "linux", "linux": "windows"} {
		for what, host := range map[string]string{
			"by its address":          w.pods[to].Status.PodIP + ":8080",
			"by its Service":          services[to].Spec.ClusterIP + ":80",
			"by the Service's name":   to + ":80",
			"by the name with domain": to + "." + w.namespace + ".svc:80",
		} {
			problems = append(problems, tell(fmt.Sprintf("from the pod %s to %s %s", from, to, what),
				w.dial(ctx, w.pods[from], host)))
		}
	}
	port := services["windows"].Spec.Ports[0].NodePort
	problems = append(problems, tell("from the pod linux to the NodePort of windows",
		w.dial(ctx, w.pods["linux"], fmt.Sprintf("%s:%d", w.pods["windows"].Status.HostIP, port))))
	err := errors.Join(problems...)
	if err == nil {
		w.note("API server to both pods; each to the other by address, Service, name; NodePort")
	}
	return err
}

// tell adds the description of a connection to the connection's error.
func tell(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// ask sends a request to a pod through the API server.
func (w workload) ask(ctx context.Context, pod *corev1.Pod, path string, query url.Values) ([]byte, error) {
	request := w.clients.CoreV1().RESTClient().Get().Namespace(pod.Namespace).Resource("pods").
		Name(pod.Name + ":8080").SubResource("proxy").Suffix(path)
	for key, values := range query {
		request = request.Param(key, values[0])
	}
	return request.DoRaw(ctx)
}

// dial makes a pod connect to another address. agnhost answers {"responses":[…]} or {"errors":[…]}.
func (w workload) dial(ctx context.Context, from *corev1.Pod, target string) error {
	host, port, _ := strings.Cut(target, ":")
	return w.await(ctx, w.Timeout, "connecting to "+target, func(ctx context.Context) (bool, string, error) {
		answer, err := w.ask(ctx, from, "/dial", url.Values{"host": {host}, "port": {port}, "protocol": {"http"},
			"request": {"hostname"}, "tries": {"1"}})
		return err == nil && strings.Contains(string(answer), `"responses"`), string(answer), err
	})
}

// The method balances waits for a load balancer, and connects through it.
func (w workload) balances(ctx context.Context) error {
	if err := apply(ctx, w.run, w.namespace, "balancer.yaml"); err != nil {
		return err
	}
	address := ""
	err := w.await(ctx, 2*w.Timeout, "the load balancer's address", func(ctx context.Context) (bool, string, error) {
		s := &corev1.Service{}
		err := w.client.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: "balanced"}, s)
		for _, i := range s.Status.LoadBalancer.Ingress {
			address = i.IP + i.Hostname
		}
		return address != "", "", err
	})
	if err != nil {
		return err
	}
	return tell("through the load balancer "+address, w.dial(ctx, w.pods["linux"], address+":80"))
}

// The method `stores` writes to a volume in one pod, and reads from the volume in another pod.
func (w workload) stores(ctx context.Context) error {
	for _, name := range []string{"writes", "reads"} {
		file := map[string]string{"writes": "storage.yaml", "reads": "storage-read.yaml"}[name]
		if err := apply(ctx, w.run, w.namespace, file); err != nil {
			return err
		}
		err := w.await(ctx, w.JoinTimeout, "the pod "+name+" ending", func(ctx context.Context) (bool, string, error) {
			pod := &corev1.Pod{}
			if err := w.client.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, pod); err != nil {
				return false, "", err
			}
			if pod.Status.Phase == corev1.PodFailed {
				return false, "", wrongf("the pod %s failed: %s", name, pod.Status.Message)
			}
			return pod.Status.Phase == corev1.PodSucceeded, unschedulable(pod) + " " + waits(pod), nil
		})
		if err != nil {
			return tell("storage", err)
		}
	}
	return nil
}

// The method scales waits until a HorizontalPodAutoscaler reads the load of pods on Windows.
func (w workload) scales(ctx context.Context) error {
	if err := apply(ctx, w.run, w.namespace, "scale.yaml"); err != nil {
		return err
	}
	return w.await(ctx, 2*w.Timeout, "the autoscaler reading metrics", func(ctx context.Context) (bool, string, error) {
		h := &autoscalingv2.HorizontalPodAutoscaler{}
		err := w.client.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: "windows"}, h)
		last := ""
		for _, c := range h.Status.Conditions {
			if last = c.Message; c.Type == autoscalingv2.ScalingActive && c.Status == corev1.ConditionTrue {
				return true, "", nil
			}
		}
		return false, last, err
	})
}
