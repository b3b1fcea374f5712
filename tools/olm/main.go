package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	if err := command().Execute(); err != nil {
		os.Exit(1)
	}
}

func command() *cobra.Command {
	o := options{}
	c := &cobra.Command{
		Use: "olm", Short: "Make OLM's bundle and a catalog with it out of config/", Args: cobra.NoArgs,
		SilenceUsage: true,
		Long: `Make OLM's bundle and a catalog with it out of config/.

<out>/bundle is a bundle of the format registry+v1, and <out>/catalog a file-based catalog with it. Both are
directories with a Containerfile's worth of content: each becomes an image of its own, the bundle's under --bundle.
Name images by digest, as mirrors of a cluster without internet replace digests only.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := build(o); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "%s/bundle\n%s/catalog\n", o.out, o.out)
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&o.root, "root", ".", "top `directory` of the source tree")
	f.StringVar(&o.version, "version", "0.1.0", "`version` of the operator")
	f.StringVar(&o.replaces, "replaces", "", "`version` that this one takes the place of, whose rights OLM then removes; if it is of the major version before, "+
		"OLM also upgrades from there")
	f.StringVar(&o.payload, "payload", "out/payload", "payload `directory` of that image, whose kubelets say for which clusters it is")
	f.StringVar(&o.image, "image", "", "operator's `image`; that of config/default if empty")
	f.StringVar(&o.bundleImage, "bundle", "quay.io/windows-nodes/wmco-bundle:v0.1.0", "`image` of the bundle, for the catalog")
	f.StringVar(&o.out, "out", "out/olm", "`directory` to write to; what is in its directories bundle and catalog goes")
	return c
}
