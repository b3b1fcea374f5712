package lint

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Offer holds the platforms of an image.
type Offer struct {
	// Systems are the operating systems of its variants.
	Systems []string
	// Builds are the Windows builds of its variants, such as 20348.
	Builds []int
}

// Images returns the platforms of an image's variants. It is called once for each image, by several goroutines.
type Images interface {
	Offer(ctx context.Context, image string) (Offer, error)
}

// atOnce is the number of concurrent requests for images.
const atOnce = 8

// CheckImages reads the images of the templates from their registries and compares them with the nodes of the pods.
// If it can't read an image, it warns about this.
func CheckImages(ctx context.Context, templates []Template, c Cluster, images Images) []Finding {
	offers := ask(ctx, templates, images)
	var all []Finding
	for i := range templates {
		p := pod{Template: &templates[i], cluster: c, system: systemOf(&templates[i].Spec, c)}
		p.containers(func(path string, container *corev1.Container) {
			a := offers[container.Image]
			say := func(severity Severity, message, fix string) {
				all = append(all, Finding{p.Object, severity, "image", p.path(path + ".image"),
					container.Image + " " + message, fix})
			}
			if a.err != nil {
				say(Warning, fmt.Sprintf("could not be inspected: %v", a.err),
					"Check its name, and your right to pull it.")
				return
			}
			p.judge(container, a.offer, say)
		})
	}
	return order(all)
}

// answer of a registry for one image.
type answer struct {
	offer Offer
	err   error
}

func ask(ctx context.Context, templates []Template, images Images) map[string]answer {
	var mu sync.Mutex
	answers := map[string]answer{}
	asked := sets.New[string]()
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range templates {
		p := pod{Template: &templates[i]}
		p.containers(func(_ string, c *corev1.Container) {
			if asked.Has(c.Image) {
				return
			}
			asked.Insert(c.Image)
			group.Go(func() error {
				offer, err := images.Offer(ctx, c.Image)
				mu.Lock()
				defer mu.Unlock()
				answers[c.Image] = answer{offer, err}
				return nil
			})
		})
	}
	_ = group.Wait()
	return answers
}

// judge compares one image with its pod.
func (p *pod) judge(c *corev1.Container, offer Offer, say func(Severity, string, string)) {
	windows := slices.Contains(offer.Systems, string(systemWindows))
	switch {
	case p.system == systemWindows && !windows && len(offer.Systems) > 0:
		say(Error, "has no variant for Windows, only for "+list(offer.Systems), "Use a Windows image.")
	case p.system != systemWindows && windows && len(offer.Systems) == 1:
		say(Error, "runs on Windows only, and the pod does not select Windows",
			"Set spec.os.name to windows and the node selector kubernetes.io/os: windows.")
	case p.system == systemWindows && len(offer.Builds) > 0 && !hostProcess(&p.Spec, c):
		p.judgeBuilds(offer.Builds, say)
	}
}

// judgeBuilds compares builds. HostProcess containers are not isolated and start on every build.
func (p *pod) judgeBuilds(offered []int, say func(Severity, string, string)) {
	nodes := p.builds()
	unfit := fits(offered, nodes)
	if len(unfit) == 0 {
		return
	}
	message := fmt.Sprintf("is made for Windows build %s and does not start on nodes of build %s",
		numbers(offered), numbers(unfit))
	fix := "Use an image for that build, or select nodes by " + corev1.LabelWindowsBuild + "."
	if len(unfit) == len(nodes) {
		say(Error, message, fix)
		return
	}
	say(Warning, message, fix)
}

// builds returns the builds of the nodes that can run the pod.
func (p *pod) builds() []int {
	wanted := p.Spec.NodeSelector[corev1.LabelWindowsBuild]
	if wanted == "" && p.Spec.RuntimeClassName != nil {
		wanted = p.cluster.RuntimeClasses[*p.Spec.RuntimeClassName]
	}
	var all []int
	for _, build := range p.cluster.Builds {
		n := buildNumber(build)
		if n != 0 && (wanted == "" || buildNumber(wanted) == n) && !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	return all
}

func numbers(all []int) string {
	var words []string
	for _, n := range all {
		words = append(words, strconv.Itoa(n))
	}
	return strings.Join(words, ", ")
}
